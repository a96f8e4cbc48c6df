"""What the sequence experiments are asked, as predicates that were written before the records were read.

Each is judged seed by seed with both methods at their best rate, the one with the lowest mean training loss in the last
epoch. It holds where every seed says so, does not hold where none does, and is undecided otherwise or where a cell
was not run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orthonorm_paper.records.cells import Cell, best
from orthonorm_paper.records.files import Record
from orthonorm_paper.records.sequences import METHODS, RATES, SEEDS

from .rule import FAILS, HOLDS, UNDECIDED, SeedAnswer, decide


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
    """The cell of a method at its best rate; None where every one diverged or none was run."""
    return best((cell for cell in cells if cell.run.method == method), "train_loss")


def epoch_seconds(cells: Sequence[Cell], method: str) -> float:
    """Seconds of a method's fastest epoch at any rate, which other work on the machine has disturbed least."""
    records = (record for cell in cells if cell.run.method == method for record in cell.records)
    return min(line.seconds for record in records for line in record.epochs if line.seconds is not None)


def judge(question: Question, cells: Sequence[Cell]) -> tuple[str, str]:
    """Answer and the numbers behind it, by seed.

    Args:
        question: entry of ``QUESTIONS``.
        cells: of one network.
    """
    if not _complete(question, cells):
        return UNDECIDED, "not every run is recorded"
    own, other = chosen(cells, question.method), chosen(cells, question.than)
    if own is None or other is None:
        return (FAILS if own is None else HOLDS), "every run of one diverged"
    seconds = epoch_seconds(cells, question.method), epoch_seconds(cells, question.than)
    pairs = zip(own.records, other.records, strict=True)
    verdict = decide({}, [_KINDS[question.kind](a, b, *seconds) for a, b in pairs], len(SEEDS))
    return verdict.answer, verdict.numbers


def _complete(question: Question, cells: Sequence[Cell]) -> bool:
    return bool(cells) and all(
        any((cell.run.method, cell.run.lr, cell.seeds) == (method, rate, list(SEEDS)) for cell in cells)
        for method in (question.method, question.than)
        for rate in RATES[cells[0].run.experiment]
    )


def _lower(own: Record, other: Record, *_: float) -> SeedAnswer:
    ours, theirs = own.final("train_loss"), other.final("train_loss")
    return SeedAnswer(ours < theirs, f"{ours:.3g} against {theirs:.3g}")


def _sooner(own: Record, other: Record, own_seconds: float, other_seconds: float) -> SeedAnswer:
    goal, there = other.final("train_loss"), len(other.epochs) * other_seconds
    epochs = [i for i, line in enumerate(own.epochs, 1) if (loss := line.train_loss) is not None and loss <= goal]
    if not epochs:
        return SeedAnswer(False, f"never, against {there:.2f} s")
    needed = epochs[0] * own_seconds
    return SeedAnswer(needed < there, f"{needed:.2f} s against {there:.2f} s")


_KINDS: dict[str, Callable[[Record, Record, float, float], SeedAnswer]] = {"lower": _lower, "sooner": _sooner}
