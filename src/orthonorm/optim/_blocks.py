"""Blocks of equal shape, gathered from many parameters and stepped as one batch."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from orthonorm.functional.stiefel._layout import matrix_layout

from ._shards import held_rows, local

__all__ = ["Blocks", "Place", "batches", "grad_of", "places"]

# Matrices of one batch hold at most this many entries: temporaries stay in a processor's cache, and
# on an accelerator a step takes a bounded amount of memory beside the weights.
_CPU_ENTRIES = 2**17
_ACCELERATOR_ENTRIES = 2**24


@dataclass(frozen=True, slots=True)
class Place:
    """Where one group of rows lies in a weight."""

    index: int
    member: int | None
    """Which matrix of a stack, or of this rank's part of it; `None` where the weight is one matrix."""
    rows: slice | None
    """Rows of that matrix, or of this rank's part of it, or `None` for all of them."""
    columns: bool
    """Whether the block is the transpose, for a weight with orthonormal columns."""
    shape: tuple[int, ...]
    """Shape of those rows in the weight."""
    size: tuple[int, int]
    """Shape of the block, `(rows, d)` with `rows <= d`."""

    def of(self, tensor: Tensor) -> Tensor:
        """The rows of a tensor shaped like the weight, flattened; a view where strides allow."""
        tensor = self._rows_of(tensor)
        return tensor if len(self.shape) == 2 else tensor.reshape(self.shape[0], -1)

    def _rows_of(self, tensor: Tensor) -> Tensor:
        tensor = local(tensor)
        if self.member is not None:
            tensor = tensor[self.member]
        return tensor if self.rows is None else tensor[self.rows]

    def write(self, tensor: Tensor, rows: Tensor) -> None:
        """Copy flattened rows into a tensor shaped like the weight."""
        tensor = self._rows_of(tensor)
        tensor.copy_(rows if len(self.shape) == 2 else rows.reshape(self.shape))


@lru_cache(maxsize=4096)
def places(
    shape: tuple[int, ...], group_size: int | None, held: tuple[int, int] | None = None, stacked: bool = False
) -> tuple[Place, ...]:
    """The places of a weight's groups; of those that this rank holds, if it has only some rows."""
    if stacked:
        start, end = (0, shape[0]) if held is None else held
        inner = places(shape[1:], group_size)
        return tuple(
            replace(place, index=i * len(inner) + place.index, member=i - start)
            for i in range(start, end)
            for place in inner
        )
    layout = matrix_layout(shape, group_size)
    first, stop = (0, layout.n) if held is None else held
    if layout.transposed:
        return (Place(0, None, None, True, tuple(shape), (layout.d, layout.n)),) if stop > first else ()
    whole = len(layout.sizes) == 1
    return tuple(
        Place(i, None, None if whole else slice(a - first, b - first), False, (b - a, *shape[1:]), (b - a, layout.d))
        for i, (a, b) in enumerate(layout.bounds)
        if first <= a < stop
    )


@dataclass(frozen=True, slots=True)
class Blocks:
    """Groups of one shape, dtype and device; a parameter occurs once for each of its groups."""

    params: list[Tensor]
    places: list[Place]

    @property
    def grads(self) -> list[Tensor]:
        """The gradients of the parameters, which all have one."""
        return [grad_of(param) for param in self.params]

    def where(self, keep: list[bool]) -> "Blocks":
        """The blocks that are marked."""
        return Blocks(
            [param for param, kept in zip(self.params, keep, strict=True) if kept],
            [place for place, kept in zip(self.places, keep, strict=True) if kept],
        )

    def stack(self, tensors: list[Tensor]) -> Tensor:
        """Read the blocks of tensors shaped like the parameters as a batch `(m, rows, d)`."""
        rows = [place.of(tensor) for place, tensor in zip(self.places, tensors, strict=True)]
        batch = torch.stack(rows) if len(rows) > 1 else rows[0].unsqueeze(0)
        # Rows of the transpose contiguous: LAPACK's triangular solve would copy it otherwise.
        return batch.mT.contiguous() if self.places[0].columns else batch

    def scatter(self, tensors: list[Tensor], batch: Tensor) -> None:
        """Copy a batch `(m, rows, d)` into the blocks of tensors shaped like the parameters."""
        if self.places[0].columns:
            batch = batch.mT
        for place, tensor, rows in zip(self.places, tensors, batch.unbind(0), strict=True):
            place.write(tensor, rows)


def grad_of(param: Tensor) -> Tensor:
    """The gradient of a parameter known to have one."""
    assert param.grad is not None
    return param.grad


def batches(params: list[Tensor], group_size: int | None, stacked: bool = False) -> Iterator[Blocks]:
    """The groups of all parameters, those of one shape, dtype and device together."""
    alike: dict[tuple, list[Tensor]] = {}
    for param in params:
        alike.setdefault((param.shape, held_rows(param), param.dtype, param.device), []).append(param)
    buckets: dict[tuple, Blocks] = {}
    for (shape, held, *kind), same in alike.items():
        for place in places(shape, group_size, held, stacked):
            key = (place.size, place.columns, *kind)
            bucket = buckets.setdefault(key, Blocks([], []))
            bucket.params.extend(same)
            bucket.places.extend([place] * len(same))
    for ((rows, d), _, _, device), bucket in buckets.items():
        limit = _CPU_ENTRIES if device.type == "cpu" else _ACCELERATOR_ENTRIES
        count = max(1, limit // (rows * d))
        for i in range(0, len(bucket.params), count):
            yield Blocks(bucket.params[i : i + count], bucket.places[i : i + count])
