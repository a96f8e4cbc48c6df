"""In which dtype and at which size the transformation is computed, whatever those of the weight and autocast."""

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ._matmul_precision import full_float32

__all__ = [
    "PRECISIONS",
    "check_precision",
    "exact_products",
    "frobenius_norm",
    "in_float64",
    "power_of_two_below",
    "row_norms",
    "without_autocast",
    "working_dtype",
]

PRECISIONS = ("auto", "float64")


def check_precision(precision: str, device: torch.device) -> None:
    """Raise a ValueError for a precision that is not known, or that the device does not have."""
    if precision not in PRECISIONS:
        raise ValueError(
            f"precision must be one of {', '.join(map(repr, PRECISIONS))}; got {precision!r}. Pass precision='auto'."
        )
    if precision == "float64" and device.type == "mps":
        raise ValueError(
            f"precision='float64' needs a device with float64; got {device}. Pass precision='auto', or use the CPU."
        )


def working_dtype(*tensors: Tensor) -> torch.dtype:
    """Return the dtype in which Gram matrices are formed: float64, or float32 on a device without it."""
    return torch.float32 if any(t.device.type == "mps" for t in tensors) else torch.float64


def in_float64(X: Tensor) -> Tensor:
    """Return X in float64 where it lies; on the CPU where its device has none. For diagnostics, which may be slow."""
    return (X if working_dtype(X) == torch.float64 else X.cpu()).to(torch.float64)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which products keep their dtypes; on `meta`, which has no autocast, one that does nothing."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def exact_products(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[Any]:
    """Return a context in which products of a dtype are computed in it, in all its digits.

    Neither autocast nor TF32 nor bfloat16. Traced code cannot change the setting of float32 products; where they are
    reduced, the transformation computes in float64 there.
    """
    if torch.compiler.is_compiling() or device.type == "meta":
        return without_autocast(device)
    full = full_float32(device, dtype)
    return _both(without_autocast(device), full) if torch.is_autocast_enabled(device.type) else full


@contextmanager
def _both(first: AbstractContextManager[Any], second: AbstractContextManager[Any]) -> Iterator[None]:
    with first, second:
        yield


def power_of_two_below(X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch 1 1"]:
    """Return the power of two below the largest entry of each matrix, by which it can be divided without rounding.

    Examples:
        >>> power_of_two_below(torch.tensor([[[3.0, -5.0]], [[0.0, 0.0]]])).flatten()
        tensor([4., 1.])
    """
    largest = X.abs().amax((-2, -1), keepdim=True)
    # The logarithm of the largest number of a type is rounded up, to that of a power that is no number of it.
    exponent = largest.log2().floor().clamp_max(math.frexp(torch.finfo(X.dtype).max)[1] - 1)
    return torch.where(largest > 0, exponent.exp2(), 1.0)


def row_norms(rows: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n"]:
    """Return the norm of each row, right also where the squares of its entries are no numbers of the dtype.

    Examples:
        >>> row_norms(torch.tensor([[3e30, 4e30], [3e-30, 4e-30]]))
        tensor([5.0000e+30, 5.0000e-30])
    """
    scale = power_of_two_below(rows.unsqueeze(-2)).squeeze(-1)
    return (rows / scale).norm(dim=-1) * scale.squeeze(-1)


def frobenius_norm(X: Float[Tensor, "*batch n d"]) -> Tensor:
    """Return the norm of all entries in float64, right also where their squares are no numbers of the dtype.

    Examples:
        >>> frobenius_norm(torch.tensor([[3e30, 0.0], [0.0, 4e30]]))
        tensor(5.0000e+30, dtype=torch.float64)
    """
    return row_norms(in_float64(X).reshape(1, -1)).squeeze()
