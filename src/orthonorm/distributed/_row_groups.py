"""The groups of rows of a model's weights, what each costs, and which rank transforms which, as plain numbers."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch

from orthonorm.functional._option_types import MethodName, Precision

__all__ = ["GroupedWeight", "RowGroup", "groups_of", "share_out"]


@dataclass(frozen=True)
class GroupedWeight:
    """What decides how a weight's rows are transformed: one matrix `(n, d)` for each of a convolution's own groups."""

    key: str
    parts: int
    sizes: tuple[int, ...]
    d: int
    center: bool
    method: MethodName
    precision: Precision = "auto"
    dtype: torch.dtype = torch.float32

    @property
    def bytes(self) -> int:
        """Size of its entries."""
        return self.parts * sum(self.sizes) * self.d * self.dtype.itemsize


@dataclass(frozen=True)
class RowGroup:
    """One group of rows that are orthonormal together: the least that a rank can transform."""

    weight: int
    part: int
    start: int
    size: int
    d: int
    center: bool
    method: MethodName
    precision: Precision

    @property
    def kind(self) -> tuple[int, int, bool, MethodName, Precision]:
        """What groups that are transformed in one batch have in common."""
        return self.d, self.size, self.center, self.method, self.precision

    @property
    def numel(self) -> int:
        """Number of its entries."""
        return self.size * self.d


def groups_of(weights: Sequence[GroupedWeight], first: int = 0) -> list[RowGroup]:
    """Return the groups of rows of some weights, which are numbered from `first`."""
    return [
        RowGroup(first + i, part, start, size, weight.d, weight.center, weight.method, weight.precision)
        for i, weight in enumerate(weights)
        for part in range(weight.parts)
        for start, size in zip(accumulate(weight.sizes, initial=0), weight.sizes, strict=False)
    ]


def share_out(costs: Sequence[int], ranks: int, loads: list[int] | None = None) -> list[int]:
    """Return the rank of each piece of work: the dearest first, each to the rank that has least so far.

    The same numbers give the same answer on every rank, so nothing has to be agreed upon. No rank gets more than the
    mean plus the dearest piece, nor more than 4/3 - 1/(3R) times the best possible.

    Args:
        costs: of the pieces.
        ranks: how many ranks there are.
        loads: what each rank has already; updated.

    Examples:
        >>> share_out([5, 4, 3, 3, 3], 2)
        [0, 1, 1, 0, 1]

    Source: Graham, Bounds on multiprocessing timing anomalies, 1969 (longest processing time first).
    """
    loads = [0] * ranks if loads is None else loads
    heap = [(load, rank) for rank, load in enumerate(loads)]
    heapq.heapify(heap)
    owners = [0] * len(costs)
    for i in sorted(range(len(costs)), key=lambda i: -costs[i]):
        load, rank = heap[0]
        owners[i], loads[rank] = rank, load + costs[i]
        heapq.heapreplace(heap, (loads[rank], rank))
    return owners
