"""In which dtype and at which size the transformation is computed, whatever those of the weight and autocast."""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = [
    "in_float64",
    "keeping_precision",
    "power_of_two_below",
    "row_norms",
    "without_autocast",
    "working_dtype",
]


def working_dtype(*tensors: Tensor) -> torch.dtype:
    """Return the type in which Gram matrices are formed: float64, or float32 on a device without it."""
    return torch.float32 if any(t.device.type == "mps" for t in tensors) else torch.float64


def in_float64(X: Tensor) -> Tensor:
    """Return X in float64 where it lies; on the CPU where its device has none. For diagnostics, which may be slow."""
    return (X if working_dtype(X) == torch.float64 else X.cpu()).to(torch.float64)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which products keep their types; on `meta`, which has no autocast, one that does nothing."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def keeping_precision(*tensors: Tensor) -> AbstractContextManager[Any]:
    """Return `without_autocast` where the working type is one that autocast would lower: never float64."""
    return nullcontext() if working_dtype(*tensors) == torch.float64 else without_autocast(tensors[0].device)


def power_of_two_below(X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch 1 1"]:
    """Return the power of two below the largest entry of each matrix, by which it can be divided without rounding.

    Example:
        >>> power_of_two_below(torch.tensor([[[3.0, -5.0]], [[0.0, 0.0]]])).flatten()
        tensor([4., 1.])
    """
    largest = X.abs().amax((-2, -1), keepdim=True)
    # The logarithm of the largest number of a type is rounded up, to that of a power that is no number of it.
    exponent = largest.log2().floor().clamp_max(math.frexp(torch.finfo(X.dtype).max)[1] - 1)
    return torch.where(largest > 0, exponent.exp2(), 1.0)


def row_norms(rows: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n"]:
    """Return the norm of each row, right also where the squares of its entries are no numbers of the type.

    Example:
        >>> row_norms(torch.tensor([[3e30, 4e30], [3e-30, 4e-30]]))
        tensor([5.0000e+30, 5.0000e-30])
    """
    scale = power_of_two_below(rows.unsqueeze(-2)).squeeze(-1)
    return (rows / scale).norm(dim=-1) * scale.squeeze(-1)
