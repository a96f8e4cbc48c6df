"""Mutate one module of the library with mutmut, and list the mutants that no test of a file notices.

    python tools/mutation.py [MODULE TEST_FILE ...]

For a release, by hand: a module of a hundred mutants takes about two minutes. mutmut runs in a copy of the library and
its tests, in an environment of its own that shares the other packages with this one (build/mutation).
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from environments import make

ROOT = Path(__file__).resolve().parents[1]
MUTMUT = "mutmut==3.8.1"
DEFAULT = ("src/orthonorm/functional/_groups.py", "tests/functional/test_groups.py")
COPIED = ("src", "tests", "conftest.py", "pyproject.toml", "README.md", "LICENSE")


def config(module: str, tests: Sequence[str]) -> str:
    """What mutmut reads from pyproject.toml: all of the library is copied, one module of it mutated."""
    settings = {
        "source_paths": ["src/orthonorm"],
        "only_mutate": [module],
        "pytest_add_cli_args_test_selection": list(tests),
        "also_copy": ["tests", "conftest.py", "pyproject.toml"],
    }
    return "\n[tool.mutmut]\n" + "".join(f"{name} = {value!r}\n" for name, value in settings.items())


def main(arguments: Sequence[str]) -> int:
    module, *tests = arguments or DEFAULT
    if not tests or not all((ROOT / file.partition("::")[0]).is_file() for file in (module, *tests)):
        print(__doc__, file=sys.stderr)
        return 2
    folder = ROOT / "build" / "mutation"
    shutil.rmtree(folder, ignore_errors=True)
    mutmut = make(folder / "environment", MUTMUT).parent / "mutmut"
    copy = folder / "checkout"
    copy.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, copy)
    with (copy / "pyproject.toml").open("a") as file:
        file.write(config(module, tests))
    # The wrappers that enforce types would notice mutants for the tests.
    environment = os.environ | {"ORTHONORM_TYPECHECK": "0", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([mutmut, "run", "--max-children", "2"], cwd=copy, env=environment)
    subprocess.run([mutmut, "results"], cwd=copy, env=environment)
    print(f"see one: cd {copy} && {mutmut} show NAME")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
