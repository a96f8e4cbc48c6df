"""Build the wheel and the source distribution, and run the suite on what the wheel installs, outside the checkout.

    python tools/wheel.py [PYTEST ARGUMENTS]

The tests run in a copy of tests/ and of the pages and examples that they read, beside which there is no src/; the
wheel lies in an environment of its own that shares the other packages with this one.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from environments import make, run_suite

ROOT = Path(__file__).resolve().parents[1]
# What the tests read.
BESIDE = ("tests", "docs", "examples", "README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml", "mkdocs.yml")
# It builds from the sources.
LEFT_OUT = "tests/project/test_packaging.py"


def build(kind: str, folder: Path) -> Path:
    """Build a distribution ("wheel" or "sdist") of the sources into a new folder; its path."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    (path,) = folder.iterdir()
    return path


def main(arguments: Sequence[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="orthonorm-wheel-") as text:
        folder = Path(text).resolve()
        sdist, wheel = build("sdist", folder / "sdist"), build("wheel", folder / "wheel")
        print(f"built {sdist.name} and {wheel.name}", flush=True)
        python = make(folder / "environment", "--no-deps", str(wheel))
        copy = folder / "checkout"
        copy.mkdir()
        for name in BESIDE:
            source, ignore = ROOT / name, shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, copy / name, ignore=ignore) if source.is_dir() else shutil.copy(source, copy)
        package = _imported(python, copy)
        if not package.is_relative_to(folder / "environment"):
            print(f"the tests would import {package} and not the wheel's files", file=sys.stderr)
            return 1
        print(f"imported from {package.relative_to(folder)}", flush=True)
        return 0 if run_suite(python, copy, [*(arguments or ["tests", str(package)]), f"--ignore={LEFT_OUT}"]) else 1


def _imported(python: Path, folder: Path) -> Path:
    """Where a process in the folder finds the package."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, "-c", "import orthonorm; print(orthonorm.__file__)"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip()).parent


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
