"""Environments for the suite that share this one's packages, but for those that each has of its own."""

import os
import subprocess
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

# A whole suite beside other work takes 25 minutes.
SECONDS = 5400


def make(folder: Path, *own: str) -> Path:
    """Make an environment in which `own`, pip's arguments, is installed; everything else is this environment's.

    Returns:
        Its Python.
    """
    venv.create(folder, with_pip=True, clear=True, symlinks=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *own], check=True)
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    # Behind its own packages, so those win; a path alone, so that this library's own sources are not among the shared.
    (Path(site) / "shared.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return python


def run_suite(python: Path, root: Path, arguments: Sequence[str], *, search: Path | None = None) -> bool:
    """Run pytest in `root`, first what is checked for shapes and types, then what compiles; whether both passed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"OMP_NUM_THREADS": "1"} | ({} if search is None else {"PYTHONPATH": str(search)})
    passed = True
    for marked, enforced in (("not compiled", "1"), ("compiled", "0")):
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", marked, *arguments]
        passed &= _run(command, root, environment | {"ORTHONORM_TYPECHECK": enforced})
    return passed


def _run(command: Sequence[str | Path], root: Path, environment: Mapping[str, str]) -> bool:
    print("+", *command, flush=True)
    no_test = 5
    return subprocess.run(command, cwd=root, env=environment, timeout=SECONDS).returncode in (0, no_test)
