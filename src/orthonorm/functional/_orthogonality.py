"""How far the rows of a matrix are from orthonormal."""

import torch
from jaxtyping import Float
from torch import Tensor

from ._precision import working_dtype

__all__ = ["orthogonality_errors"]


def orthogonality_errors(
    W: Float[Tensor, "*batch n d"], sizes: tuple[int, ...] | None = None
) -> Float[Tensor, "*batch k"]:
    """Return the largest entry of `|W W^T - I|` of each group of rows, computed in float64 where the device has it.

    Args:
        W: one or more matrices.
        sizes: the sizes of the groups; None for a single group.

    Raises:
        ValueError: if the sizes do not sum to the number of rows.

    Examples:
        >>> orthogonality_errors(torch.tensor([[1.0, 0.0], [0.0, 1.1]]), (1, 1))
        tensor([0.0000, 0.2100], dtype=torch.float64)

    Source: the constraint W W^T = I of equation (1) of the paper.
    """
    n = W.shape[-2]
    sizes = (n,) if sizes is None else sizes
    if sum(sizes) != n:
        raise ValueError(f"the sizes of the groups must sum to the {n} rows; got {sizes}.")
    X = W.detach().to(working_dtype(W))
    errors = []
    for part in X.split(sizes, dim=-2):
        eye = torch.eye(part.shape[-2], dtype=X.dtype, device=X.device)
        errors.append((part @ part.mT - eye).abs().amax((-2, -1)))
    return torch.stack(errors, dim=-1)
