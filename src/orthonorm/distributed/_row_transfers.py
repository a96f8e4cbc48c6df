"""Which rows go to which rank where a border between shards cuts a group of rows: plain numbers and slices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from orthonorm.functional._groups import operations

from ._buckets import Bucket
from ._row_groups import GroupedWeight, RowGroup

__all__ = ["Moves", "rows_per_rank", "where_most_rows_are"]


def rows_per_rank(rows: int, ranks: int) -> int:
    """Return how many rows each rank holds, the last ones fewer or none: torch's rule for `Shard(0)`."""
    return -(-rows // ranks)


def _span(group: RowGroup, weight: GroupedWeight) -> tuple[int, int]:
    """Return the first and one past the last row of a group in the weight's tensor."""
    start = group.part * sum(weight.sizes) + group.start
    return start, start + group.size


def where_most_rows_are(weights: Sequence[GroupedWeight], ranks: int) -> Callable[[list[RowGroup]], list[int]]:
    """Return the rule that gives each group to the rank that holds most of its rows, the least busy of several.

    Groups that only one rank can take come first, so that those that borders cut even out what they leave.
    """
    loads = [0] * ranks

    def owners(groups: list[RowGroup]) -> list[int]:
        found = [_holders_of_most(group, weights[group.weight], ranks) for group in groups]
        costs = [operations(group.size, group.d) for group in groups]
        chosen = [0] * len(groups)
        for i in sorted(range(len(groups)), key=lambda i: (len(found[i]) > 1, -costs[i])):
            chosen[i] = min(found[i], key=lambda rank: loads[rank])
            loads[chosen[i]] += costs[i]
        return chosen

    return owners


def _holders_of_most(group: RowGroup, weight: GroupedWeight, ranks: int) -> list[int]:
    held = rows_per_rank(weight.parts * sum(weight.sizes), ranks)
    start, stop = _span(group, weight)
    shares = {r: min(stop, (r + 1) * held) - max(start, r * held) for r in range(start // held, (stop - 1) // held + 1)}
    most = max(shares.values())
    return [rank for rank, share in shares.items() if share == most]


@dataclass(frozen=True)
class _Segment:
    """Rows of one group that one rank holds."""

    weight: int
    start: int
    stop: int
    """Rows within the holder's shard."""
    d: int
    holder: int
    mapper: int
    group: tuple[int, int]

    @property
    def numel(self) -> int:
        return (self.stop - self.start) * self.d

    def of(self, local: Sequence[Tensor]) -> Tensor:
        return local[self.weight][self.start : self.stop]


class Moves:
    """The segments of a bucket's groups, in the order of the pieces."""

    def __init__(self, bucket: Bucket, ranks: int) -> None:
        self.ranks = ranks
        self.pieces: list[list[_Segment]] = [
            [segment for group in piece for segment in _segments(group, bucket, ranks, mapper)]
            for mapper, piece in enumerate(bucket.pieces)
        ]
        self.moved: list[_Segment] = [s for piece in self.pieces for s in piece if s.holder != s.mapper]
        self.any: bool = bool(self.moved)

    def counts_from(self, rank: int) -> list[int]:
        """Return how many numbers `rank` sends to each rank."""
        return [sum(s.numel for s in self.moved if (s.holder, s.mapper) == (rank, to)) for to in range(self.ranks)]

    def counts_to(self, rank: int) -> list[int]:
        """Return how many numbers `rank` gets from each rank."""
        return [sum(s.numel for s in self.moved if (s.holder, s.mapper) == (of, rank)) for of in range(self.ranks)]

    def _leaving(self, rank: int) -> list[_Segment]:
        return [s for s in self.moved if s.holder == rank]  # by mapper, since the pieces are

    def _coming(self, rank: int) -> list[_Segment]:
        return sorted((s for s in self.pieces[rank] if s.holder != rank), key=lambda s: s.holder)

    def sent(self, local: Sequence[Tensor], rank: int) -> Tensor:
        """Return the rows that leave a rank, flat, by the rank they go to."""
        return _concatenate([s.of(local) for s in self._leaving(rank)], local[0])

    def piece(self, local: Sequence[Tensor], received: Tensor | None, rank: int) -> Tensor:
        """Return the rows of the groups that a rank transforms, flat, from its own and the received ones."""
        coming = self._coming(rank)
        parts = received.split([s.numel for s in coming]) if received is not None and coming else ()
        arrived = {id(s): part for s, part in zip(coming, parts, strict=True)}
        return _concatenate([arrived[id(s)] if id(s) in arrived else s.of(local) for s in self.pieces[rank]], local[0])

    def return_piece(self, grad: Tensor, local: Sequence[Tensor], rank: int) -> Tensor:
        """Write the gradient of a piece into the rank's own rows, and return that of the others' rows, flat."""
        segments = self.pieces[rank]
        parts = dict(zip(map(id, segments), grad.split([s.numel for s in segments]) if segments else (), strict=True))
        for s in segments:
            if s.holder == rank:
                s.of(local).copy_(parts[id(s)].view(-1, s.d))
        return _concatenate([parts[id(s)] for s in self._coming(rank)], grad)

    def take_back(self, received: Tensor, local: Sequence[Tensor], rank: int) -> None:
        """Write the gradients of the rows that had left the rank into its rows."""
        leaving = self._leaving(rank)
        for s, part in zip(leaving, received.split([s.numel for s in leaving]) if leaving else (), strict=True):
            s.of(local).copy_(part.view(-1, s.d))


def _concatenate(parts: Sequence[Tensor], like: Tensor) -> Tensor:
    return torch.cat([part.reshape(-1) for part in parts]) if parts else like.new_empty(0)


def _segments(group: RowGroup, bucket: Bucket, ranks: int, mapper: int) -> list[_Segment]:
    """Return the parts of a group by the rank that holds them, in the order of the rows."""
    number = group.weight - bucket.first
    weight = bucket.weights[number]
    held = rows_per_rank(weight.parts * sum(weight.sizes), ranks)
    start, stop = _span(group, weight)
    return [
        _Segment(
            number,
            max(start, r * held) - r * held,
            min(stop, (r + 1) * held) - r * held,
            group.d,
            r,
            mapper,
            (group.weight, start),
        )
        for r in range(start // held, (stop - 1) // held + 1)
    ]
