"""Claims about a table of errors as predicates on records; the claims themselves are in `paper_numbers.toml`."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

from orthonorm_paper.records.cells import DASH
from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.figures.mean_curves import curve, epochs_to
from orthonorm_paper.reports.markdown import escape
from orthonorm_paper.reports.tables.placement import Placed

from .rule import UNDECIDED, Claim, SeedAnswer, Verdict, decide, less, verdict_table

# The records of one seed in one column, by label.
Seed = Mapping[str, Record]


def verdict_lines(placed: Placed) -> list[str]:
    """Table of the layout's claims, each judged in every column."""
    several = any(len(placed.cells(key, row)) > 1 for key in placed.columns for row in placed.rows)
    verdicts = [(key, judge_column(claim, placed, key)) for claim in placed.layout.claims for key in placed.columns]
    unrun = [verdict for _, verdict in verdicts if not verdict.seeds]
    rows = [
        (
            verdict.claim["text"],
            escape(placed.column_title(key)),
            f"**{verdict.answer}**",
            str(verdict.seeds),
            verdict.difference or DASH,
            escape(verdict.numbers),
        )
        for key, verdict in verdicts
        if verdict.seeds
    ]
    where = "data set" if placed.layout.by == "dataset" else "network"
    heading = ("claim", where, "verdict", "seeds", "mean difference (95% interval)", "numbers, by seed")
    lines = verdict_table(heading, rows, unrun, len(verdicts))
    note = [
        "",
        "Of several learning rates of a method, the one with the lowest mean final training loss is judged, of those "
        "that all its seeds ran.",
    ]
    return [*lines, *(note if several else [])]


def judge_column(claim: Claim, placed: Placed, key: str) -> Verdict:
    """Judge a claim on the records of one column."""
    by_seed: dict[int, dict[str, Record]] = {}
    for row in placed.rows:
        cell = None if row.model else placed.chosen(key, row)
        for record in cell.records if cell is not None else ():
            by_seed.setdefault(record.run.seed, {})[row.label] = record
    needed = [*claim["methods"], *claim.get("than", [])]
    absent = [label for label in needed if not any(label in found for found in by_seed.values())]
    if absent:
        return Verdict(claim, UNDECIDED, f"not run: {', '.join(absent)}")
    whole = {seed: found for seed, found in sorted(by_seed.items()) if all(label in found for label in needed)}
    field = claim.get("field", placed.layout.field)
    return decide(claim, [_KINDS[claim["kind"]](claim, found, field) for found in whole.values()])


def _errors(labels: list[str], found: Seed, field: str) -> dict[str, float]:
    return {label: found[label].final(field) for label in labels}


def _texts(errors: Mapping[str, float]) -> str:
    return ", ".join(f"{label} {error:.2f}" for label, error in errors.items())


def _below(claim: Claim, found: Seed, field: str) -> SeedAnswer:
    own, others = _errors(claim["methods"], found, field), _errors(claim["than"], found, field)
    text = f"{_texts(own)} against {_texts(others)}"
    if claim.get("expected", True):
        return SeedAnswer(less(max(own.values()), min(others.values())), text)
    return SeedAnswer(min(own.values()) >= max(others.values()), text)


def _falling(claim: Claim, found: Seed, field: str) -> SeedAnswer:
    errors = _errors(claim["methods"], found, field)
    return SeedAnswer(min(less(b, a) for a, b in itertools.pairwise(errors.values())), _texts(errors))


def _above_best(claim: Claim, found: Seed, field: str) -> SeedAnswer:
    own, others = _errors(claim["methods"], found, field), _errors(claim["than"], found, field)
    text = f"{_texts(own)} against {_texts(others)}"
    return SeedAnswer(less(min(others.values()), min(own.values())), text)


def _reaches(claim: Claim, found: Seed, field: str) -> SeedAnswer:
    target = max(_errors(claim["than"], found, field).values())
    answer, texts = True, []
    for label in claim["methods"]:
        record = found[label]
        epochs = _epochs(record, field, target)
        answer = answer and epochs <= claim["within"] * record.run.epochs
        texts.append(
            f"{label} after {epochs:.1f} of {record.run.epochs} epochs" if epochs < math.inf else f"{label} never"
        )
    return SeedAnswer(answer, f"{', '.join(texts)} (target {target:.2f})")


def _epochs(record: Record, field: str, target: float) -> float:
    # A run that diverged gets nowhere.
    return math.inf if math.isinf(record.final(field)) else epochs_to(curve(record, field), target)


def _faster(claim: Claim, found: Seed, field: str) -> SeedAnswer:
    differences, texts = [], []
    for own, other in itertools.product(claim["methods"], claim["than"]):
        finals = found[own].final(field), found[other].final(field)
        target = max(filter(math.isfinite, finals), default=math.inf)
        epochs = _epochs(found[own], field, target), _epochs(found[other], field, target)
        differences.append(less(*epochs))
        texts.append(f"{own} {epochs[0]:.1f} against {other} {epochs[1]:.1f} epochs (to {target:.2f})")
    return SeedAnswer(min(differences), ", ".join(texts))


def _sooner(claim: Claim, found: Seed, field: str) -> SeedAnswer:
    target = found[claim["methods"][0]].final(field)
    epochs = {label: _epochs(found[label], field, target) for label in claim["methods"]}
    text = ", ".join(f"{label} {number:.1f}" for label, number in epochs.items())
    differences = [less(b, a) for a, b in itertools.pairwise(epochs.values())]
    return SeedAnswer(min(differences), f"{text} epochs (to {target:.2f})")


_KINDS: dict[str, Callable[[Any, Seed, str], SeedAnswer]] = {
    "below": _below,
    "falling": _falling,
    "above-best": _above_best,
    "reaches": _reaches,
    "faster": _faster,
    "sooner": _sooner,
}
