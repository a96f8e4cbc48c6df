"""Run the suite with the oldest torch that the library supports and with the newest there is.

    python tools/torch_versions.py [VERSION ...] [-- PYTEST ARGUMENTS]

Each version gets an environment of its own in build/torch, of several gigabytes, with the torchvision that fits;
the other packages are this environment's. Without a version: the bound in pyproject.toml, and what pip finds.
"""

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from environments import make, run_suite

ROOT = Path(__file__).resolve().parents[1]


def lowest() -> str:
    """The lowest supported version of torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    bounds = (re.fullmatch(r"torch>=([\d.]+)", requirement) for requirement in project["dependencies"])
    (found,) = (bound[1] for bound in bounds if bound)
    return f"{found}.0"


def main(words: Sequence[str]) -> int:
    split = [*words, "--"].index("--")
    versions, arguments = words[:split] or [lowest(), ""], words[split + 1 :]
    failed = []
    for version in versions:
        name = version or "newest"
        python = make(ROOT / "build" / "torch" / name, f"torch=={version}" if version else "torch", "torchvision")
        print(f"torch {name}", flush=True)
        if not run_suite(python, ROOT, arguments, search=ROOT / "src"):
            failed.append(name)
    print(f"fails with torch {', '.join(failed)}" if failed else "passes with every torch asked for")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
