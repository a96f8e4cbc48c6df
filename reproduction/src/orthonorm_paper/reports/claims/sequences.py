"""What the sequence experiments are asked, as predicates that were written before the records were read.

Each is judged by the paired differences of the seeds (Note [rule] in `rule.py`) with both methods at their best
learning rate, the one with the lowest mean training loss in the last epoch. It is undecided where a cell was not run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orthonorm_paper.records.cells import Cell, best
from orthonorm_paper.records.files import Record
from orthonorm_paper.records.sequences import METHODS, SEEDS
from orthonorm_paper.records.stability import complete
from orthonorm_paper.records.variations import base_name
from orthonorm_paper.reports.figures.mean_curves import curve, epochs_to

from .rule import UNDECIDED, SeedAnswer, Verdict, decide


@dataclass(frozen=True)
class Question:
    """Whether one method does better than another: ``lower`` in training loss, or ``sooner`` at the other's."""

    method: str
    kind: str
    than: str

    @property
    def text(self) -> str:
        """The question as a statement."""
        if self.kind == "lower":
            return f"{self.method} ends at a lower training loss than {self.than}"
        return f"{self.method} reaches the last training loss of {self.than} in fewer seconds"


OLM = ("recurrent-OLM", "recurrent-OLM-scale")
QUESTIONS = tuple(
    Question(method, kind, than)
    for method in OLM
    for than in METHODS
    if than not in OLM
    for kind in ("lower", "sooner")
)


def chosen(cells: Sequence[Cell], method: str) -> Cell | None:
    """The cell of a method at its best learning rate of those that all its seeds ran; None where every one diverged."""
    return best(complete(cell for cell in cells if cell.run.method == method), "train_loss")


def epoch_seconds(cells: Sequence[Cell], method: str) -> float:
    """Seconds of a method's fastest epoch at any learning rate, which other work on the machine has disturbed least."""
    records = (record for cell in cells if cell.run.method == method for record in cell.records)
    return min(line.seconds for record in records for line in record.epochs if line.seconds is not None)


def judge(question: Question, cells: Sequence[Cell]) -> Verdict:
    """Verdict with the numbers behind it, by seed.

    Args:
        question: entry of ``QUESTIONS``.
        cells: of one network.
    """
    own, other = chosen(cells, question.method), chosen(cells, question.than)
    if not all(any(cell.run.method == method for cell in cells) for method in (question.method, question.than)):
        return Verdict({}, UNDECIDED, "not every run is recorded")
    if own is None or other is None:
        return Verdict({}, UNDECIDED, "every run of one diverged")
    # A variation of the seeds has those that it was given.
    name = own.run.experiment
    if not own.seeds == other.seeds == (own.seeds if "-seeds" in name else list(SEEDS[base_name(name)])):
        return Verdict({}, UNDECIDED, "not every run is recorded")
    seconds = epoch_seconds(cells, question.method), epoch_seconds(cells, question.than)
    pairs = zip(own.records, other.records, strict=True)
    return decide({}, [_KINDS[question.kind](a, b, *seconds) for a, b in pairs])


def _lower(own: Record, other: Record, *_: float) -> SeedAnswer:
    ours, theirs = own.final("train_loss"), other.final("train_loss")
    return SeedAnswer(theirs - ours, f"{ours:.3g} against {theirs:.3g}")


def _sooner(own: Record, other: Record, own_seconds: float, other_seconds: float) -> SeedAnswer:
    there = len(other.epochs) * other_seconds
    needed = epochs_to(curve(own, "train_loss"), other.final("train_loss")) * own_seconds
    if math.isinf(needed):
        return SeedAnswer(-math.inf, f"never, against {there:.2f} s")
    return SeedAnswer(there - needed, f"{needed:.2f} s against {there:.2f} s")


_KINDS: dict[str, Callable[[Record, Record, float, float], SeedAnswer]] = {"lower": _lower, "sooner": _sooner}
