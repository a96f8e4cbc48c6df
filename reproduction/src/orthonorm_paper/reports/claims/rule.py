"""The rule that turns the answers of the seeds into a verdict on a claim: holds, does not hold, or undecided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"

Claim = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Answer to a claim, with the numbers that it rests on."""

    claim: Claim
    answer: str
    numbers: str


@dataclass(frozen=True)
class SeedAnswer:
    """Answer for one seed; None where cells are missing."""

    answer: bool | None
    numbers: str


def decide(claim: Claim, given: Iterable[SeedAnswer], seeds: int) -> Verdict:
    """Verdict from the answers of the seeds: they must agree, and be ``seeds`` at least.

    Examples:
        >>> decide({}, [SeedAnswer(True, "1"), SeedAnswer(None, ""), SeedAnswer(True, "3")], seeds=2)
        Verdict(claim={}, answer='holds', numbers='1; 3')
    """
    found = [seed for seed in given if seed.answer is not None]
    answers = {seed.answer for seed in found}
    numbers = "; ".join(seed.numbers for seed in found)
    if len(found) < seeds:
        counted = f"{len(found)} of {seeds} seeds complete"
        return Verdict(claim, UNDECIDED, f"{counted}: {numbers}" if numbers else counted)
    answer = UNDECIDED if len(answers) > 1 else HOLDS if answers == {True} else FAILS
    return Verdict(claim, answer, numbers)
