"""Division by a power of two, which rounds nothing, so that sums and squares stay numbers of the type."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["power_of_two_below", "row_norms"]


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
