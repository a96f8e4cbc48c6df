"""The command `python -m benchmarks.ways`: it runs what has no record yet, and can be stopped at any moment."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .problems import PROBLEMS, load
from .runs import finish, next_runs
from .ways import WAYS

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train every way on every problem, at rates that are widened until no best one is at an edge."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ways", description="All ways on one footing; resumes.")
    parser.add_argument("--out", type=Path, default=Path("build/ways"), help="where records are (default: %(default)s)")
    parser.add_argument("--problem", choices=PROBLEMS, action="append", help="only this one; may be repeated")
    parser.add_argument("--way", choices=WAYS, action="append", help="only this one; may be repeated")
    options = parser.parse_args(arguments)
    for problem in options.problem or PROBLEMS:
        task = load(PROBLEMS[problem])
        for way in options.way or WAYS:
            records: list[dict[str, Any]] = []
            while runs := next_runs(problem, way, records):
                for run in runs:
                    records.append(finish(run, options.out, task))
                    print(run, {key: f"{value:.3g}" for key, value in records[-1]["epochs"][-1].items()}, flush=True)


if __name__ == "__main__":
    main()
