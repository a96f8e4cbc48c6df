"""A bucket: the weights that are exchanged in one collective, and where each group of rows lies in its buffer."""

from collections.abc import Callable, Sequence
from itertools import groupby

import torch
from torch import Tensor

from orthonorm.functional import orthonormalize
from orthonorm.functional._groups import operations

from ._row_groups import GroupedWeight, RowGroup, groups_of, share_out

__all__ = ["Bucket", "balanced", "make_buckets"]

# Note [the buffer of a bucket]
# Rank r maps the groups of `pieces[r]`, those of one kind side by side, and writes their rows into a piece of
# `length` entries, the longest any rank needs, since collectives take pieces of one length. The buffer is the pieces
# of all ranks, one after another. As groups of a kind are neighbours, a batch of them is a view of the piece, and the
# rows of all weights come out of the buffer by one `split`, whose derivative is one concatenation.


class Bucket:
    """Some weights, and the groups of their rows that each rank transforms: see Note [the buffer of a bucket].

    Args:
        first: number of its first weight in the model.
        weights: its weights.
        pieces: the groups of rows that each rank transforms.
    """

    def __init__(self, first: int, weights: list[GroupedWeight], pieces: list[list[RowGroup]]) -> None:
        self.first: int = first
        self.weights: list[GroupedWeight] = weights
        self.pieces: list[list[RowGroup]] = [
            sorted(piece, key=lambda g: (g.kind, g.weight, g.part, g.start)) for piece in pieces
        ]
        self.length: int = max(sum(group.numel for group in piece) for piece in self.pieces)
        self.splits: list[int] = []
        places: list[list[tuple[int, int, int]]] = [[] for _ in weights]
        for piece in self.pieces:
            for group in piece:
                places[group.weight - first].append((group.part, group.start, len(self.splits)))
                self.splits.append(group.numel)
            self.splits.append(self.length - sum(group.numel for group in piece))
        self.places: list[list[int]] = [[place for _, _, place in sorted(found)] for found in places]

    def map(self, flat: Tensor, rank: int) -> Tensor:
        """Return the orthonormal rows of a rank's piece from its rows of V, both flat: one batch for each kind."""
        runs = [list(run) for _, run in groupby(self.pieces[rank], key=lambda group: group.kind)]
        parts = flat.split([sum(group.numel for group in run) for run in runs])
        mapped = [
            orthonormalize(
                part.view(len(run), run[0].size, run[0].d),
                center=run[0].center,
                method=run[0].method,
                precision=run[0].precision,
            )
            for part, run in zip(parts, runs, strict=True)
        ]
        return torch.cat([rows.flatten() for rows in mapped])

    def piece_of(self, rows: Sequence[Tensor], rank: int) -> Tensor:
        """Return a rank's piece from the rows `(parts, n, d)` of the bucket's weights, flat and without padding."""
        piece = self.pieces[rank]
        if not piece:
            return rows[0].new_empty(0)
        return torch.cat([rows[g.weight - self.first][g.part, g.start : g.start + g.size].reshape(-1) for g in piece])

    def rows_of(self, buffer: Tensor) -> list[Tensor]:
        """Return the rows `(parts, n, d)` of every weight of the bucket from its buffer."""
        views = buffer.split(self.splits)
        return [
            torch.cat([views[place] for place in places]).view(weight.parts, sum(weight.sizes), weight.d)
            for weight, places in zip(self.weights, self.places, strict=True)
        ]


def make_buckets(
    weights: Sequence[GroupedWeight], limit: float, owners: Callable[[list[RowGroup]], list[int]], ranks: int
) -> list[Bucket]:
    """Return the buckets of a model's weights, in its order.

    Args:
        weights: of the model.
        limit: a bucket is closed once it holds so many bytes.
        owners: gives the rank that transforms each of some groups.
        ranks: how many ranks there are.
    """
    buckets: list[Bucket] = []
    start = 0
    while start < len(weights):
        stop, size = start, 0
        while stop < len(weights) and size < limit and weights[stop].dtype == weights[start].dtype:
            size += weights[stop].bytes
            stop += 1
        groups = groups_of(weights[start:stop], start)
        pieces: list[list[RowGroup]] = [[] for _ in range(ranks)]
        for group, owner in zip(groups, owners(groups), strict=True):
            pieces[owner].append(group)
        buckets.append(Bucket(start, list(weights[start:stop]), pieces))
        start = stop
    return buckets


def balanced(ranks: int) -> Callable[[list[RowGroup]], list[int]]:
    """Return the rule that gives each group to the rank with the least work so far, over all buckets."""
    loads = [0] * ranks
    return lambda groups: share_out([operations(g.size, g.d) for g in groups], ranks, loads)
