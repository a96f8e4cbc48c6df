"""Batches of matrices in blocks that a CPU's cache holds, and memory that serves one block after the other."""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["BLOCK_BYTES", "Buffer", "split", "split_into_blocks"]

BLOCK_BYTES = 6 * 2**20


def split_into_blocks(V: Tensor, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Return the batch in blocks to be computed at once in `dtype`; all of it where it is traced, or not on a CPU."""
    if V.device.type != "cpu" or torch.compiler.is_compiling():
        return (V,)
    block = max(1, BLOCK_BYTES // (dtype.itemsize * V.shape[-2] * V.shape[-1]))
    return (V,) if V.shape[0] <= block else V.split(block)


def split(X: Tensor, counts: list[int]) -> Sequence[Tensor]:
    """Return the parts of a batch of the given lengths; one part is the batch itself, without a call."""
    return (X,) if len(counts) == 1 else X.split(counts)


class Buffer:
    """Memory of one dtype that serves one block after the other, seen in the shape of each.

    Memory that is new to the process costs as much as the arithmetic on it.
    """

    def __init__(self, blocks: Sequence[Tensor], dtype: torch.dtype) -> None:
        self.memory = torch.empty(max(block.numel() for block in blocks), dtype=dtype, device=blocks[0].device)
        self.views: dict[torch.Size, Tensor] = {}

    def like(self, block: Tensor) -> Tensor:
        """Return the memory in the shape of a block."""
        if block.shape not in self.views:
            self.views[block.shape] = self.memory[: block.numel()].view(block.shape)
        return self.views[block.shape]
