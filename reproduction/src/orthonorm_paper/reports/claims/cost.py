"""Claims about the seconds of a step as predicates on ratios; the claims themselves are in `paper_numbers.toml`."""

from __future__ import annotations

from collections.abc import Mapping

from .rule import FAILS, HOLDS, UNDECIDED, Claim, Verdict

# Seconds of a step by (network, label).
Seconds = Mapping[tuple[str, str], float]


def judge_cost(claim: Claim, ours: Seconds) -> Verdict:
    """Judge a claim on the seconds of a step: a measurement, not a sample of seeds, so that each ratio must agree."""
    found = []
    pairs = [(method, other) for method in claim["methods"] for other in claim["than"]]
    for method, other in pairs:
        own, plain = ours.get((claim["model"], method)), ours.get((claim["model"], other))
        if own is not None and plain is not None:
            found.append((own / plain <= claim["limit"], f"{method} {own / plain:.2f} times {other}"))
    answers, numbers = {answer for answer, _ in found}, "; ".join(text for _, text in found)
    if len(found) < len(pairs):
        return Verdict(claim, UNDECIDED, numbers or "not run")
    return Verdict(claim, UNDECIDED if len(answers) > 1 else HOLDS if answers == {True} else FAILS, numbers, 1)
