"""Fill the numbers that pages quote from the committed records and measurements.

A page writes `<!--= FIELD EXPERIMENT PATTERN -->0.97<!--/-->`: the mean over the seeds of a field in the last epoch, of
the runs whose ids fit the pattern. Of several learning rates the one with the lowest training loss stands, of those
that all seeds ran. `LABEL@PATTERN` takes the runs with this label alone (spaces in it as underscores), since ids do not
show a method's arguments. The number that is there says how many digits to print, and "0.97 ± 0.02" asks for the
standard deviation too.

`FIRST..SECOND` for a pattern is the mean of the second less the first by paired seeds, "0.97 (0.61 to 1.33)" with its
95% interval: how much lower the first is.

README, which people read as plain text too, has the short form `0.97<!--NAME-->`. `quoted_numbers.toml` has by name
what the first marker of the long form says.

`COLUMN bench/SUITE CELL|CELL` is the figure in a column of the one row of `docs/bench/SUITE.json` that has these cells
(spaces as underscores); `1/COLUMN` its inverse.
"""

import fnmatch
import functools
import json
import re
import statistics
import sys
import tomllib
from pathlib import Path

from orthonorm_paper.records.cells import Cell, best, cells
from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.stability import complete
from orthonorm_paper.reports.claims.rule import interval
from orthonorm_paper.reports.tables.layouts import label_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A line may break inside a number with its spread.
_NUMBER = r"(-?\d+)(\.\d+)?(\s+±\s+\S+?|\s+\(\S+\s+to\s+\S+?\))?"
MARK = re.compile(rf"(<!--= (\S+) (\S+) (\S+) -->){_NUMBER}(<!--/-->)")
SHORT = re.compile(rf"(?<![\w.-]){_NUMBER}(<!--([\w-]+)-->)")
NAMES: dict[str, str] = tomllib.loads((ROOT / "tools" / "quoted_numbers.toml").read_text())


@functools.cache
def recorded(experiment: str) -> tuple[Cell, ...]:
    """The cells of an experiment."""
    return tuple(cells(read_folder(ROOT / "reproduction" / "records" / experiment)))


def chosen(experiment: str, pattern: str) -> Cell:
    """The cell that a pattern stands for."""
    label, at, ids = pattern.rpartition("@")
    found = [
        cell
        for cell in recorded(experiment)
        if fnmatch.fnmatchcase(cell.run.id, ids) and (not at or label_of(cell.run).replace(" ", "_") == label)
    ]
    cell = best(complete(found), "train_loss")
    if cell is None:
        raise ValueError(f"a number on a page needs a run that ended; no run of {experiment} fits {pattern}")
    return cell


def difference(field: str, experiment: str, pattern: str) -> tuple[float, float, float]:
    """How much lower the first of two patterns is, by paired seeds: mean, and the ends of its 95% interval."""
    first, second = (chosen(experiment, part) for part in pattern.split(".."))
    theirs = {record.run.seed: record.final(field) for record in second.records}
    pairs = [theirs[r.run.seed] - r.final(field) for r in first.records if r.run.seed in theirs]
    return statistics.fmean(pairs), *interval(pairs)


def measured(column: str, suite: str, cells: str) -> float:
    """The figure of a benchmark."""
    inverse, column, wanted = column.startswith("1/"), column.removeprefix("1/"), set(cells.split("|"))
    rows = json.loads((ROOT / "docs" / f"{suite}.json").read_text())["rows"]
    rows = [{name.replace(" ", "_"): value for name, value in row.items()} for row in rows]
    found = [row[column] for row in rows if wanted <= {str(value).replace(" ", "_") for value in row.values()}]
    if len(found) != 1:
        raise ValueError(f"a number on a page needs one row of {suite}; {len(found)} have the cells {sorted(wanted)}")
    return 1 / found[0] if inverse else found[0]


def number(field: str, experiment: str, pattern: str, digits: int, spread: str) -> str:
    """What the records, or the measurements, say."""
    if experiment.startswith("bench/"):
        return f"{measured(field, experiment, pattern):.{digits}f}"
    if ".." in pattern:
        mean, low, high = difference(field, experiment, pattern)
        return f"{mean:.{digits}f}" + (f" ({low:.{digits}f} to {high:.{digits}f})" if spread else "")
    cell = chosen(experiment, pattern)
    return cell.text(field, digits) if spread else f"{cell.mean(field):.{digits}f}"


def filled(page: str) -> str:
    """The page with every marked number as the records have it."""

    def fill(mark: re.Match[str]) -> str:
        (begin, field, experiment, pattern, _, decimals, spread, end) = mark.groups()
        return begin + number(field, experiment, pattern, len(decimals or ".") - 1, spread or "") + end

    def fill_short(mark: re.Match[str]) -> str:
        (_, decimals, spread, end, name) = mark.groups()
        field, experiment, pattern = NAMES[name].split()
        return number(field, experiment, pattern, len(decimals or ".") - 1, spread or "") + end

    return SHORT.sub(fill_short, MARK.sub(fill, page))


def main() -> None:
    """Rewrite the pages that changed."""
    for page in PAGES:
        text = page.read_text()
        if text != filled(text):
            page.write_text(filled(text))
            sys.stdout.write(f"written: {page.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
