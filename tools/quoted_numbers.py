"""Fill the numbers that pages quote from the committed records.

A page writes `<!--= FIELD EXPERIMENT PATTERN -->0.97<!--/-->`: the mean over the seeds of a field in the last epoch, of
the runs whose ids fit the pattern. Of several learning rates the one with the lowest training loss stands. The number
that is there says how many digits to print, and "0.97 ± 0.02" asks for the standard deviation too.
"""

import fnmatch
import functools
import re
import sys
from pathlib import Path

from orthonorm_paper.records.cells import Cell, best, cells
from orthonorm_paper.records.folders import read_folder

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MARK = re.compile(r"(<!--= (\S+) (\S+) (\S+) -->)(\d+)(\.\d+)?( ± \S+?)?(<!--/-->)")


@functools.cache
def recorded(experiment: str) -> tuple[Cell, ...]:
    """The cells of an experiment."""
    return tuple(cells(read_folder(ROOT / "reproduction" / "records" / experiment)))


def number(field: str, experiment: str, pattern: str, digits: int, spread: bool) -> str:
    """What the records say."""
    found = [cell for cell in recorded(experiment) if fnmatch.fnmatchcase(cell.run.id, pattern)]
    cell = best(found, "train_loss")
    if cell is None:
        raise ValueError(f"a number on a page needs a run that ended; no run of {experiment} fits {pattern}")
    return cell.text(field, digits) if spread else f"{cell.mean(field):.{digits}f}"


def filled(page: str) -> str:
    """The page with every marked number as the records have it."""

    def fill(mark: re.Match[str]) -> str:
        (begin, field, experiment, pattern, _, decimals, spread, end) = mark.groups()
        return begin + number(field, experiment, pattern, len(decimals or ".") - 1, spread is not None) + end

    return MARK.sub(fill, page)


def main() -> None:
    """Rewrite the pages that changed."""
    for page in PAGES:
        text = page.read_text()
        if text != filled(text):
            page.write_text(filled(text))
            sys.stdout.write(f"written: {page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
