"""Records grouped into cells: the runs that differ in nothing but the seed."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from .files import DIVERGED, Record
from .run import Run

DASH = "–"


@dataclass(frozen=True)
class Cell:
    """Records of one cell, by seed."""

    run: Run
    records: tuple[Record, ...]

    @property
    def seeds(self) -> list[int]:
        """Seeds in rising order."""
        return [record.run.seed for record in self.records]

    @property
    def diverged(self) -> int:
        """How many of the seeds diverged."""
        return sum(record.outcome == DIVERGED for record in self.records)

    def finals(self, field: str) -> list[float]:
        """Value of a field in the last epoch, infinite for a run that diverged."""
        return [record.final(field) for record in self.records]

    def mean(self, field: str) -> float:
        """Mean over the seeds; infinite if one diverged."""
        return statistics.fmean(self.finals(field))

    def deviation(self, field: str) -> float | None:
        """Standard deviation of the sample over the seeds; None for fewer than two or if one diverged."""
        values = self.finals(field)
        if len(values) < 2 or not all(map(math.isfinite, values)):
            return None
        return statistics.stdev(values)

    def text(self, field: str, digits: int) -> str:
        """Mean and standard deviation for a table; "diverged" where a mean would mean nothing.

        A cell in which some seeds diverged says how many.
        """
        if self.diverged:
            return "diverged" + _share(self.diverged, len(self.records))
        mean, deviation = self.mean(field), self.deviation(field)
        if not math.isfinite(mean):
            return "not finite"
        spread = "" if deviation is None else f" ± {deviation:.{digits}f}"
        return f"{mean:.{digits}f}{spread}"

    def mean_text(self, field: str) -> str:
        """Mean alone, with three significant digits."""
        if self.diverged:
            return "diverged" + _share(self.diverged, len(self.records))
        mean = self.mean(field)
        return f"{mean:.3g}" if math.isfinite(mean) else "not finite"


def _share(part: int, whole: int) -> str:
    return "" if part == whole else f" ({part} of {whole})"


def cells(records: Iterable[Record]) -> list[Cell]:
    """Cells in the order in which their first record comes; records inside by seed."""
    groups: dict[Run, list[Record]] = {}
    for record in records:
        groups.setdefault(dataclasses.replace(record.run, seed=0), []).append(record)
    return [Cell(run, tuple(sorted(group, key=lambda record: record.run.seed))) for run, group in groups.items()]


def best(candidates: Iterable[Cell], field: str) -> Cell | None:
    """Cell with the lowest mean of a field; None where every one diverged or there is none."""
    finite = [cell for cell in candidates if math.isfinite(cell.mean(field))]
    return min(finite, key=lambda cell: cell.mean(field), default=None)
