"""Soft orthogonality: penalties to add to a loss, for comparison with exact constraints."""

import torch
from jaxtyping import Float
from torch import Tensor

from orthonorm.functional.stiefel._layout import matrix_layout

__all__ = ["double_soft_orthogonality", "soft_orthogonality"]


def soft_orthogonality(W: Float[Tensor, "*batch n d"], *, group_size: int | None = None) -> Float[Tensor, "*batch"]:
    """Return the squared distance of the Gram matrix from the identity, summed over the groups of rows.

    `sum_g |W_g W_g^T - I|_F^2`; for a tall matrix without groups `|W^T W - I|_F^2`

    Args:
        W: any real floating dtype. Flatten a convolution kernel first, `weight.flatten(1)`.
        group_size: at most this many rows per group, or `None`, as in `StiefelSGD`.

    Returns:
        One number a matrix, zero exactly for what `StiefelSGD` would keep.

    Raises:
        TypeError: `W` is complex or not floating point; `group_size` is not a whole number.
        ValueError: fewer than two dimensions, or `group_size` below 1.

    Examples:
        >>> soft_orthogonality(torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])).item()
        9.0

    Source: Bansal, Chen, Wang, Can we gain more from orthogonality regularizations in training deep networks?,
    NeurIPS 2018, "SO".
    """
    total = W.new_zeros(W.shape[:-2])
    for block in _blocks(W, group_size):
        total = total + _gram_distance(block)
    return total


def double_soft_orthogonality(
    W: Float[Tensor, "*batch n d"], *, group_size: int | None = None
) -> Float[Tensor, "*batch"]:
    """Return the penalty on rows and on columns, summed over the groups of rows.

    `sum_g |W_g W_g^T - I|_F^2 + |W_g^T W_g - I|_F^2`

    With singular values `s` each of the two terms is `sum (s^2 - 1)^2`, and that of the longer side has the difference
    of the sides in addition. So this is twice `soft_orthogonality` plus `sum_g |n_g - d|`, and has twice its gradient.
    It is zero for square groups only.

    Args:
        W: any real floating dtype.
        group_size: at most this many rows per group, or `None`.

    Returns:
        One number a matrix.

    Raises:
        TypeError: `W` is complex or not floating point; `group_size` is not a whole number.
        ValueError: fewer than two dimensions, or `group_size` below 1.

    Examples:
        >>> double_soft_orthogonality(torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]])).item()
        19.0

    Source: Bansal, Chen, Wang, NeurIPS 2018, "DSO".
    """
    total = W.new_zeros(W.shape[:-2])
    for block in _blocks(W, group_size):
        total = total + 2 * _gram_distance(block) + (block.shape[-1] - block.shape[-2])
    return total


def _blocks(W: Tensor, group_size: int | None) -> list[Tensor]:
    if not W.is_floating_point():
        cure = "Use a real weight." if W.is_complex() else "Convert it with .float()."
        raise TypeError(f"W must be a real floating tensor; got {W.dtype}. {cure}")
    layout = matrix_layout(tuple(W.shape[-2:]), group_size)
    return [W.mT] if layout.transposed else list(torch.split(W, list(layout.sizes), dim=-2))


def _gram_distance(W: Tensor) -> Tensor:
    deviation = W @ W.mT - torch.eye(W.shape[-2], dtype=W.dtype, device=W.device)
    return deviation.square().sum((-2, -1))
