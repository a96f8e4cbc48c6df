"""The command `python -m benchmarks.ways`: it runs what has no record yet, and can be stopped at any moment."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .page import publish, write_page
from .problems import PROBLEMS, load
from .runs import finish, next_runs
from .times import measure_times
from .ways import WAYS

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> None:
    """Train every way on every problem, at learning rates that are widened until no best one is at an edge."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ways", description="All ways on one footing; resumes.")
    parser.add_argument("--out", type=Path, default=Path("build/ways"), help="where records are (default: %(default)s)")
    parser.add_argument("--problem", choices=PROBLEMS, action="append", help="only this one; may be repeated")
    parser.add_argument("--way", choices=WAYS, action="append", help="only this one; may be repeated")
    parser.add_argument("--times", type=Path, metavar="FOLDER", help="measure the steps into FOLDER/ways.json instead")
    parser.add_argument("--publish", type=Path, metavar="FOLDER", help="write page and packed records there instead")
    options = parser.parse_args(arguments)
    if options.times:
        path = options.times / "ways.json"
        path.write_text(json.dumps(measure_times(names=options.problem), indent=1) + "\n")
        print(f"written: {path}")
        return
    if options.publish:
        page = publish(options.out, options.publish) if options.out.is_dir() else write_page(options.publish)
        print(f"written: {page}")
        return
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
