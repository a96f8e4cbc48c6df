"""The process of one seeded fault: pytest in a fresh fork, with the broken copy first on the path."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_pytest(
    arguments: Sequence[str], environment: Mapping[str, str], paths: Sequence[Path], root: Path, log: Path
) -> None:
    """Run pytest in `root` with its output in `log`; what it found is in the plugin's report."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(environment)
    os.chdir(root)
    sys.dont_write_bytecode = True
    sys.path[:0] = [str(path) for path in paths]
    import pytest

    raise SystemExit(pytest.main(list(arguments)))
