"""Claims about the comparison on MNIST as predicates on records; the claims themselves are in `paper_numbers.toml`.

A method stands for itself at the learning rate with the lowest mean final training loss, of those at which all its
seeds ran. What is compared is the training loss of one seed. A claim about several other methods is reduced to the one
that speaks most against it, seed by seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from orthonorm_paper.records.cells import Cell, best, cells
from orthonorm_paper.records.files import Record
from orthonorm_paper.records.stability import complete, is_stable
from orthonorm_paper.reports.figures.mean_curves import curve, epochs_to

from .rule import UNDECIDED, Claim, SeedAnswer, Verdict, decide, less


class _MissingCell(Exception):
    """A cell that the predicate needs was not run."""


def judge(claim: Claim, records: Iterable[Record], depth: int) -> Verdict:
    """Judge a claim at one depth on the records of one batch size.

    Args:
        claim: entry of ``paper_numbers.toml``.
        records: of one experiment and batch size, any depth and seed.
        depth: number of hidden layers.
    """
    try:
        return decide(claim, _KINDS[claim["kind"]](claim, _Table(records), depth))
    except _MissingCell as missing:
        return Verdict(claim, UNDECIDED, f"not run: {missing}")


class _Table:
    """The cells of a method at a depth."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.cells = cells(records)

    def tried(self, depth: int, method: str, keep: Callable[[float], bool] = lambda _: True) -> list[Cell]:
        own = [c for c in self.cells if (c.run.model_arguments.get("hidden_layers"), c.run.method) == (depth, method)]
        found = [cell for cell in complete(own) if keep(cell.run.lr)]
        if not found:
            raise _MissingCell(method)
        return sorted(found, key=lambda cell: cell.run.lr)

    def standing(self, depth: int, method: str, keep: Callable[[float], bool] = lambda _: True) -> dict[int, Record]:
        """The records at the best learning rate, by seed; where each has diverged, those that did least often."""
        tried = self.tried(depth, method, keep)
        top = best(tried, "train_loss") or min(tried, key=lambda cell: cell.diverged)
        return {record.run.seed: record for record in top.records}


def _unstable(claim: Claim, table: _Table, depth: int) -> list[SeedAnswer]:
    """At half or more of the learning rates above a limit the run is not stable."""
    tried = table.tried(depth, claim["method"], lambda lr: lr > claim["above"])
    answers = []
    for seed in tried[0].seeds:
        runs = [record for cell in tried for record in cell.records if record.run.seed == seed]
        bad = [record.run.lr for record in runs if not is_stable(record)]
        where = f" ({', '.join(f'{lr:g}' for lr in bad)})" if bad else ""
        unstable = 2 * len(bad) >= len(runs)
        answers.append(SeedAnswer(unstable == claim["expected"], f"{len(bad)} of {len(runs)} learning rates{where}"))
    return answers


def _compare(
    claim: Claim, table: _Table, depth: int, difference: Callable[[Record, Record], float], unit: str = ""
) -> list[SeedAnswer]:
    own = table.standing(depth, claim["method"], lambda lr: lr <= claim.get("upto", math.inf))
    others = {method: table.standing(depth, method) for method in claim["than"]}
    answers = []
    for seed in sorted(set(own).intersection(*others.values())):
        found = {method: difference(own[seed], other[seed]) for method, other in others.items()}
        losses = {method: f"{method} {other[seed].final('train_loss'):.3g}" for method, other in others.items()}
        texts = [
            f"{losses[method]} ({value:+.3g} {unit})" if unit else losses[method] for method, value in found.items()
        ]
        answers.append(
            SeedAnswer(min(found.values()), f"{own[seed].final('train_loss'):.3g} against {', '.join(texts)}")
        )
    return answers


def excess(own: Record, other: Record) -> float:
    """Final training loss of one run above another's; two that diverged differ by nothing."""
    return less(other.final("train_loss"), own.final("train_loss"))


def delay(own: Record, other: Record) -> float:
    """How many epochs later one run reaches the higher of the two final training losses than the other.

    A run that diverged never does, and two that diverged differ by nothing.
    """
    ours, theirs = own.final("train_loss"), other.final("train_loss")
    if math.isinf(ours) or math.isinf(theirs):
        return excess(own, other)
    target = max(ours, theirs)
    return epochs_to(curve(own, "train_loss"), target) - epochs_to(curve(other, "train_loss"), target)


def _gap_grows(claim: Claim, table: _Table, depth: int) -> list[SeedAnswer]:  # noqa: ARG001
    """The logarithm of the ratio of the final losses is larger at the last depth than at the first."""
    depths = claim["depths"][0], claim["depths"][-1]
    own = [table.standing(layers, claim["method"]) for layers in depths]
    others = {method: [table.standing(layers, method) for layers in depths] for method in claim["than"]}
    answers = []
    for seed in sorted(set(own[0]).intersection(own[1], *(records for pair in others.values() for records in pair))):
        growth, texts = [], []
        for method, pair in others.items():
            ratios = [_log_ratio(b[seed], a[seed]) for a, b in zip(own, pair, strict=True)]
            growth.append(_growth(*ratios))
            name = f"{method} " if len(others) > 1 else ""
            texts.append(f"{name}ratio {math.exp(ratios[0]):.3g} to {math.exp(ratios[1]):.3g}")
        answers.append(SeedAnswer(min(growth), ", ".join(texts)))
    return answers


def _growth(first: float, last: float) -> float:
    # A method that diverged at both depths is infinitely far away at both.
    return 0.0 if math.isinf(first) and first == last else last - first


def _log_ratio(above: Record, below: Record) -> float:
    return less(math.log(below.final("train_loss")), math.log(above.final("train_loss")))


_KINDS: dict[str, Callable[[Claim, _Table, int], list[SeedAnswer]]] = {
    "unstable": _unstable,
    "higher": lambda claim, table, depth: _compare(claim, table, depth, excess),
    "lower": lambda claim, table, depth: _compare(claim, table, depth, lambda a, b: -excess(a, b)),
    "slower": lambda claim, table, depth: _compare(claim, table, depth, delay, "epochs"),
    "faster": lambda claim, table, depth: _compare(claim, table, depth, lambda a, b: -delay(a, b), "epochs"),
    "gap-grows": _gap_grows,
}
