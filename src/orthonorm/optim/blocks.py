"""Blocks of equal shape, gathered from many parameters and stepped as one batch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..functional.layout import MatrixLayout, matrix_layout

# Matrices of one batch hold at most this many entries: temporaries stay in a processor's cache, and
# on an accelerator a step takes a bounded amount of memory beside the weights.
_CPU_ENTRIES = 2**18
_ACCELERATOR_ENTRIES = 2**24


@dataclass(frozen=True, slots=True)
class Block:
    """One group of a parameter: rows `start` to `stop`, or the whole weight's transpose."""

    param: Tensor
    index: int
    start: int
    stop: int
    layout: MatrixLayout

    def read(self, tensor: Tensor) -> Tensor:
        """This block of a tensor shaped like the parameter, as a matrix `(rows, d)`."""
        if self.stop - self.start != self.layout.n:
            tensor = tensor[self.start : self.stop]
        if tensor.ndim != 2:
            tensor = tensor.reshape(self.stop - self.start, -1)
        return tensor.mT if self.layout.transposed else tensor

    def write(self, tensor: Tensor, matrix: Tensor) -> None:
        """Copy a matrix `(rows, d)` into this block of `tensor`."""
        if self.stop - self.start != self.layout.n:
            tensor = tensor[self.start : self.stop]
        if self.layout.transposed:
            matrix = matrix.mT
        tensor.copy_(matrix if tensor.ndim == 2 else matrix.reshape(tensor.shape))


def grad_of(param: Tensor) -> Tensor:
    """The gradient of a parameter known to have one."""
    assert param.grad is not None
    return param.grad


def stack(blocks: list[Block], tensors: Iterable[Tensor]) -> Tensor:
    """The blocks of the given tensors, one a block, as a batch `(m, rows, d)`."""
    matrices = [block.read(tensor) for block, tensor in zip(blocks, tensors, strict=True)]
    if blocks[0].layout.transposed:
        return torch.stack([matrix.mT for matrix in matrices]).mT
    return torch.stack(matrices)


def scatter(blocks: list[Block], tensors: Iterable[Tensor], batch: Tensor) -> None:
    """Copy a batch `(m, rows, d)` back into the blocks of the given tensors."""
    for block, tensor, matrix in zip(blocks, tensors, batch.unbind(0), strict=True):
        block.write(tensor, matrix)


def batches(params: Iterable[Tensor], group_size: int | None) -> Iterator[list[Block]]:
    """The blocks of all parameters, those of one shape, dtype and device together."""
    buckets: dict[tuple, list[Block]] = {}
    for param in params:
        layout = matrix_layout(param.shape, group_size)
        for index, (start, stop) in enumerate(layout.bounds):
            key = (layout.sizes[index], layout.d, layout.transposed, param.dtype, param.device)
            buckets.setdefault(key, []).append(Block(param, index, start, stop, layout))
    for key, blocks in buckets.items():
        limit = _CPU_ENTRIES if key[-1].type == "cpu" else _ACCELERATOR_ENTRIES
        entries = max(1, (blocks[0].stop - blocks[0].start) * blocks[0].layout.d)
        size = max(1, limit // entries)
        for i in range(0, len(blocks), size):
            yield blocks[i : i + size]
