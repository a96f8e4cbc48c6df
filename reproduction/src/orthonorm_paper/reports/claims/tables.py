"""Claims about a table of errors as predicates on records; the claims themselves are in `paper_numbers.toml`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.figures.mean_curves import curve, epoch_reached
from orthonorm_paper.reports.markdown import escape, table
from orthonorm_paper.reports.tables.layouts import FULL
from orthonorm_paper.reports.tables.placement import Placed

from .rule import UNDECIDED, Claim, SeedAnswer, Verdict, decide

# The records of one seed in one column, by label.
Seed = Mapping[str, Record]


def verdict_lines(placed: Placed) -> list[str]:
    """Table of the layout's claims, each judged in every column."""
    several = any(len(placed.cells(key, row)) > 1 for key in placed.columns for row in placed.rows)
    rows = [
        (verdict.claim["text"], escape(placed.column_title(key)), f"**{verdict.answer}**", escape(verdict.numbers))
        for claim in placed.layout.claims
        for key in placed.columns
        for verdict in [judge_column(claim, placed, key)]
    ]
    note = ["", "Of several rates of a method, the one with the lowest final training loss is judged."]
    heading = ("claim", "data set" if placed.layout.by == "dataset" else "network", "verdict", "numbers, by seed")
    return [*table(heading, rows), *(note if several else [])]


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
    complete = {seed: found for seed, found in sorted(by_seed.items()) if all(label in found for label in needed)}
    answers = [_KINDS[claim["kind"]](claim, found, placed.layout.field) for found in complete.values()]
    layout = placed.layout
    return decide(claim, answers, layout.seeds if placed.variant == FULL else layout.reduced_seeds)


def _errors(labels: list[str], found: Seed, field: str) -> dict[str, float]:
    return {label: found[label].final(field) for label in labels}


def _texts(errors: Mapping[str, float]) -> str:
    return ", ".join(f"{label} {error:.2f}" for label, error in errors.items())


def _below(claim: Claim, found: Seed, field: str) -> SeedAnswer:
    own, others = _errors(claim["methods"], found, field), _errors(claim["than"], found, field)
    text = f"{_texts(own)} against {_texts(others)}"
    if claim.get("expected", True):
        return SeedAnswer(max(own.values()) < min(others.values()), text)
    return SeedAnswer(min(own.values()) >= max(others.values()), text)


def _falling(claim: Claim, found: Seed, field: str) -> SeedAnswer:
    errors = _errors(claim["methods"], found, field)
    return SeedAnswer(all(a > b for a, b in itertools.pairwise(errors.values())), _texts(errors))


def _above_best(claim: Claim, found: Seed, field: str) -> SeedAnswer:
    own, others = _errors(claim["methods"], found, field), _errors(claim["than"], found, field)
    text = f"{_texts(own)} against {_texts(others)}"
    return SeedAnswer(min(own.values()) > min(others.values()), text)


def _reaches(claim: Claim, found: Seed, field: str) -> SeedAnswer:
    target = max(_errors(claim["than"], found, field).values())
    answer, texts = True, []
    for label in claim["methods"]:
        record = found[label]
        epoch = epoch_reached(curve(record, field), target)
        answer = answer and epoch is not None and epoch <= claim["within"] * record.run.epochs
        texts.append(f"{label} in epoch {epoch or 'none'} of {record.run.epochs}")
    return SeedAnswer(answer, f"{', '.join(texts)} (target {target:.2f})")


_KINDS: dict[str, Callable[[Any, Seed, str], SeedAnswer]] = {
    "below": _below,
    "falling": _falling,
    "above-best": _above_best,
    "reaches": _reaches,
}
