"""Claims about the seconds of a step as predicates on ratios; the claims themselves are in `paper_numbers.toml`."""

from __future__ import annotations

from collections.abc import Mapping

from .rule import Claim, SeedAnswer, Verdict, decide

# Seconds of a step by (network, label).
Seconds = Mapping[tuple[str, str], float]


def judge_cost(claim: Claim, ours: Seconds) -> Verdict:
    """Judge a claim on the seconds of a step; a pair of methods counts as a seed does elsewhere."""
    answers = []
    for method, other in ((m, o) for m in claim["methods"] for o in claim["than"]):
        own, plain = ours.get((claim["model"], method)), ours.get((claim["model"], other))
        if own is not None and plain is not None:
            ratio = own / plain
            answers.append(SeedAnswer(ratio <= claim["limit"], f"{method} {ratio:.2f} times {other}"))
    return decide(claim, answers, len(claim["methods"]) * len(claim["than"]))
