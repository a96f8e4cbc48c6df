"""Claims about the comparison on MNIST as predicates on records; the claims themselves are in `paper_numbers.toml`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from orthonorm_paper.records.files import DIVERGED, Record

from .rule import Claim, SeedAnswer, Verdict, decide

# Cell of one seed: (hidden layers, method, rate) to its record.
Table = Mapping[tuple[int, str, float], Record]


class _MissingCell(Exception):
    """A cell that the predicate needs was not run."""


def judge(claim: Claim, records: Iterable[Record], depth: int, rates: list[float], seeds: int) -> Verdict:
    """Judge a claim at one depth on the records of one batch size.

    Args:
        claim: entry of ``paper_numbers.toml``.
        records: of one experiment and batch size, any depth and seed.
        depth: number of hidden layers.
        rates: the grid; a cell that is missing from it makes the seed's answer unknown.
        seeds: how many seeds it takes to decide.
    """
    tables: dict[int, dict[tuple[int, str, float], Record]] = {}
    for record in records:
        run = record.run
        layers = run.model_arguments.get("hidden_layers")
        if isinstance(layers, int):
            tables.setdefault(run.seed, {})[layers, run.method, run.lr] = record
    return decide(claim, [_answer(claim, table, depth, rates) for _, table in sorted(tables.items())], seeds)


def _answer(claim: Claim, table: Table, depth: int, rates: list[float]) -> SeedAnswer:
    try:
        return _KINDS[claim["kind"]](claim, table, depth, rates)
    except _MissingCell:
        return SeedAnswer(None, "")


def is_unstable(record: Record) -> bool:
    """The run diverged, or its last epoch's training loss is above its first epoch's."""
    if record.outcome == DIVERGED:
        return True
    first = record.epochs[0].train_loss
    return first is not None and record.final("train_loss") > first


def _cell(table: Table, depth: int, method: str, rate: float) -> Record:
    if (depth, method, rate) not in table:
        raise _MissingCell
    return table[depth, method, rate]


def _best(table: Table, depth: int, method: str, rates: list[float]) -> float:
    return min(_cell(table, depth, method, rate).final("train_loss") for rate in rates)


def _unstable(claim: Claim, table: Table, depth: int, rates: list[float]) -> SeedAnswer:
    tried = [rate for rate in rates if rate > claim["above"]]
    bad = [r for r in tried if is_unstable(_cell(table, depth, claim["method"], r))]
    unstable = 2 * len(bad) >= len(tried)
    where = f" ({', '.join(f'{r:g}' for r in bad)})" if bad else ""
    return SeedAnswer(unstable == claim["expected"], f"{len(bad)} of {len(tried)} rates{where}")


def _compare(
    claim: Claim,
    table: Table,
    depth: int,
    rates: list[float],
    holds: Callable[[float, float], bool],
) -> SeedAnswer:
    own_rates = [rate for rate in rates if rate <= claim.get("upto", math.inf)]
    own = _best(table, depth, claim["method"], own_rates)
    others = {method: _best(table, depth, method, rates) for method in claim["than"]}
    texts = ", ".join(f"{method} {loss:.3g}" for method, loss in others.items())
    return SeedAnswer(all(holds(own, loss) for loss in others.values()), f"{own:.3g} against {texts}")


def _worse(claim: Claim, table: Table, depth: int, rates: list[float]) -> SeedAnswer:
    return _compare(claim, table, depth, rates, lambda own, other: own > other)


def _better(claim: Claim, table: Table, depth: int, rates: list[float]) -> SeedAnswer:
    return _compare(claim, table, depth, rates, lambda own, other: own < other)


def _gap_grows(claim: Claim, table: Table, depth: int, rates: list[float]) -> SeedAnswer:  # noqa: ARG001
    def ratio(layers: int) -> float:
        own = _best(table, layers, claim["method"], rates)
        other = _best(table, layers, claim["than"][0], rates)
        # Where both diverged there is no gap.
        return other / own if math.isfinite(own) else 1.0 if math.isinf(other) else 0.0

    first, last = (ratio(layers) for layers in (claim["depths"][0], claim["depths"][-1]))
    return SeedAnswer(last > first, f"ratio {first:.3g} to {last:.3g}")


_KINDS: dict[str, Callable[[Claim, Table, int, list[float]], SeedAnswer]] = {
    "unstable": _unstable,
    "worse": _worse,
    "better": _better,
    "gap-grows": _gap_grows,
}
