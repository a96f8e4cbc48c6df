"""The rule that turns what the seeds say into a verdict on a claim: holds, does not hold, or undecided.

Note [rule]: runs of one seed share their initial weights and the order of the samples, so methods are compared seed by
seed. A comparison is judged by the exact sign-flip test on the mean of the paired differences: under no effect each of
the 2^n patterns of signs is as likely, and the claim holds if at most 5% of them give a mean as large as ours. It does
not hold if the contrary does. With five seeds all five must agree, with three nothing can be decided. A difference of
zero speaks for neither side, so it counts against the claim and against its contrary. There is no correction for the
number of claims. A question with yes or no for an answer is decided where five seeds or more give the same one.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.stats import t as student

from orthonorm_paper.reports.markdown import escape, table

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
# Of a one-sided test; and the seeds that a yes or no takes, as many as a comparison.
LEVEL = 0.05
LEAST_SEEDS = 5

# What stands under every table of verdicts.
RULE = (
    "A positive difference speaks for the claim. It holds where the exact sign-flip test on the mean paired difference "
    "says so at 5%, one-sided, and does not hold where the contrary does; a yes or no takes five seeds that agree. "
    "Three seeds decide nothing. There is no correction for the number of claims."
)

Claim = Mapping[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Answer to a claim, with what it rests on: how many seeds, the mean difference with its interval, the numbers."""

    claim: Claim
    answer: str
    numbers: str
    seeds: int = 0
    difference: str = ""


@dataclass(frozen=True)
class SeedAnswer:
    """What one seed says: yes or no, or a difference that is positive where it speaks for the claim.

    An infinite difference is one of which one side diverged.
    """

    value: bool | float
    numbers: str = ""


def decide(claim: Claim, given: Iterable[SeedAnswer]) -> Verdict:
    """Verdict from what the seeds say: Note [rule].

    Examples:
        >>> decide({}, [SeedAnswer(d) for d in (0.1, 0.3, 0.2, 0.1, 0.2)]).answer
        'holds'
        >>> decide({}, [SeedAnswer(d) for d in (0.1, 0.3, 0.2)]).answer
        'undecided'
        >>> decide({}, [SeedAnswer(False)] * 5).answer
        'does not hold'
    """
    found = list(given)
    numbers = "; ".join(seed.numbers for seed in found)
    values = [seed.value for seed in found]
    if all(isinstance(value, bool) for value in values):
        agree = len(values) >= LEAST_SEEDS and len(set(values)) == 1
        answer = UNDECIDED if not agree else HOLDS if values[0] else FAILS
        return Verdict(claim, answer, numbers, len(values))
    differences = [float(value) for value in values]
    answer = HOLDS if sign_flip(differences) <= LEVEL else UNDECIDED
    answer = FAILS if sign_flip([-d for d in differences]) <= LEVEL else answer
    return Verdict(claim, answer, numbers, len(differences), difference_text(differences))


def less(a: float, b: float) -> float:
    """How far the first is below the second; two runs that diverged differ by nothing.

    Examples:
        >>> less(1.0, 3.0), less(1.0, math.inf), less(math.inf, math.inf)
        (2.0, inf, 0.0)
    """
    return 0.0 if math.isinf(a) and math.isinf(b) else b - a


def lower(own: Mapping[int, float], other: Mapping[int, float]) -> Verdict:
    """Whether the values of one method are below those of another, by the seeds that both have."""
    return decide({}, [SeedAnswer(less(value, other[seed])) for seed, value in own.items() if seed in other])


def missing_line(unrun: Sequence[Verdict], count: int) -> str:
    """One line for all verdicts, of so many, that no seed could answer.

    Examples:
        >>> missing_line([Verdict({}, UNDECIDED, "not run: WN, OLM"), Verdict({}, UNDECIDED, "not run: OLM")], 5)
        '2 of 5 claims are undecided, as these were not run: OLM, WN.'
    """
    labels = sorted({label for verdict in unrun for label in verdict.numbers.removeprefix("not run: ").split(", ")})
    return f"{len(unrun)} of {count} claims are undecided, as these were not run: {', '.join(labels)}."


def verdict_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], unrun: Sequence[Verdict], count: int
) -> list[str]:
    """Table of verdicts with the rule under it, and a line for those, of so many, that no seed could answer."""
    lines = [*table(columns, rows), "", RULE, ""] if rows else []
    return [*lines, escape(missing_line(unrun, count))] if unrun else lines[:-1]


def sign_flip(differences: Sequence[float]) -> float:
    """Share of the 2^n patterns of signs whose sum is at least that of the differences as they are.

    An infinite difference counts as more than all finite ones together; two runs that diverged differ by nothing.

    Examples:
        >>> sign_flip([1.0, 2.0, 3.0, 4.0, 5.0]), sign_flip([1.0, 2.0, 3.0, 4.0, 0.0]), sign_flip([])
        (0.03125, 0.0625, 1.0)
    """
    known = [0.0 if math.isnan(d) else d for d in differences]
    large = 1.0 + 2.0 * sum(abs(d) for d in known if math.isfinite(d))
    sizes = [math.copysign(large, d) if math.isinf(d) else d for d in known]
    observed = sum(sizes)
    slack = 1e-12 * sum(map(abs, sizes))
    patterns = itertools.product((1, -1), repeat=len(sizes))
    sums = (sum(s * d for s, d in zip(signs, sizes, strict=True)) for signs in patterns)
    return sum(total >= observed - slack for total in sums) / 2 ** len(sizes)


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """95% interval of the mean by Student's t; infinite for fewer than two or where one is not finite.

    Examples:
        >>> low, high = interval([1.0, 2.0, 3.0])
        >>> round(low, 3), round(high, 3)
        (-0.484, 4.484)
    """
    if len(differences) < 2 or not all(map(math.isfinite, differences)):
        return -math.inf, math.inf
    half = student.ppf(0.975, len(differences) - 1) * statistics.stdev(differences) / math.sqrt(len(differences))
    mean = statistics.fmean(differences)
    return float(mean - half), float(mean + half)


def difference_text(differences: Sequence[float]) -> str:
    """Mean difference with its 95% interval, three significant digits; how many are not finite where some are.

    Examples:
        >>> difference_text([1.0, 2.0, 3.0])
        '+2 (-0.484 to +4.48)'
    """
    bad = sum(not math.isfinite(d) for d in differences)
    if bad or not differences:
        return f"not finite in {bad} of {len(differences)}" if bad else ""
    mean = f"{statistics.fmean(differences):+.3g}"
    if len(differences) < 2:
        return mean
    low, high = interval(differences)
    return f"{mean} ({low:+.3g} to {high:+.3g})"
