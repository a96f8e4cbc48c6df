"""The paper's transformation W = Sigma^{-1/2} (V - mean), per group of rows."""

import torch
from jaxtyping import Float
from torch import Tensor

from ._groups import group_sizes, runs_of_equal_size
from ._option_types import Grouping, MethodName, Precision, Tall, check_tall
from ._transformation import choose_path, map_batches

__all__ = ["orthonormalize", "orthonormalize_groups"]


def orthonormalize(
    V: Float[Tensor, "*batch n d"],
    *,
    group_size: int | None = None,
    center: bool = False,
    grouping: Grouping = "balanced",
    tall: Tall = "groups",
    method: MethodName = "auto",
    precision: Precision = "auto",
) -> Float[Tensor, "*batch n d"]:
    r"""Return the matrix with orthonormal rows that is nearest to `V`, group of rows by group of rows.

    $$W = \Sigma^{-1/2} V, \quad \Sigma = V V^T, \qquad W W^T = I$$

    With `center=True` it is the matrix nearest to $V_C = V - \tfrac1d V 1 1^T$, which stands for $V$ in both.

    Rows are orthonormal within a group; rows of different groups are not orthogonal to each other. `W` does not depend
    on the size of `V`. Gradients are exact, at equal singular values too, in reverse and forward mode and to second
    order; where rank is lost they are finite. `torch.vmap` and `torch.compile` work. Forward mode over forward mode,
    which torch gets wrong, is refused.

    Args:
        V: one or more matrices, of a real floating dtype.
        group_size: rows per group, at most `d - 1` with centring and `d` without; None for that limit.
        center: subtract each row's mean first, as the paper does.
        grouping: `"balanced"` (groups as even as possible) or `"tail"` (full groups and a smaller last one).
        tall: what a matrix of more rows than columns becomes: `"groups"` of orthonormal rows, or `"columns"`, one
            matrix with orthonormal columns, `W^T W = I` (`group_size` is None then and `center` False).
        method: how Sigma^{-1/2} is computed: `"eigh"`, `"newton"`, or `"auto"`. That is `"eigh"` on a CPU and
            `"newton"` on an accelerator. Compiled code takes `"newton"` for float32 (and half precision) on a CPU too.
        precision: `"auto"` computes float32 matrices (and half precision) in float32, in as many passes as accuracy
            needs. In eager mode on a CPU it computes in float64 where the condition number of a group is above 25. Up
            to a condition number of 1e3 rows are orthonormal to 1e-5 there, and to 3e-5 elsewhere. `"float64"` computes
            in float64 always, and float32 rows are orthonormal to 1e-6. Use it for condition numbers above 1e3 on an
            accelerator.

    Returns:
        `W`, of the shape and dtype of `V`. Where rows of a group are dependent, its lost directions come out finite and
        small: their singular values are below 1, often far below. A group with NaN or infinity comes out as NaN and
        leaves the others right.

    Raises:
        TypeError: if `V` is not a real floating tensor.
        ValueError: if `V` is not a matrix, its groups cannot be orthonormal, options contradict each other, or
            `precision="float64"` is asked for on a device without float64.

    Examples:
        >>> import torch, orthonorm as on
        >>> V = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
        >>> W = on.functional.orthonormalize(V, group_size=4)
        >>> torch.dist(W[:4] @ W[:4].T, torch.eye(4)) < 1e-5
        tensor(True)
        >>> W = on.functional.orthonormalize(V, tall="columns")
        >>> torch.dist(W.T @ W, torch.eye(5)) < 1e-5
        tensor(True)

    Source: equation (3) and the group based orthogonalization of the paper, with errata 1 to 3;
    Mathematics (1) to (5), (10) and (11).
    """
    if not isinstance(V, Tensor):
        raise TypeError(f"V must be a torch.Tensor; got {type(V).__name__}. Make it one with torch.as_tensor(V).")
    if V.is_complex():
        raise TypeError(
            f"V must be real; got {V.dtype}. Orthonormalize its real and imaginary parts (torch.view_as_real), or take "
            "torch.nn.utils.parametrizations.orthogonal, which makes a complex weight unitary."
        )
    if not V.is_floating_point():
        raise TypeError(f"V must be a floating tensor; got {V.dtype}. Convert it with .float().")
    if V.ndim < 2:
        raise ValueError(f"V must be matrices (..., n, d); got the shape {tuple(V.shape)}. Add a dimension.")
    check_tall(tall, group_size=group_size, center=center)
    n, d = V.shape[-2:]
    if tall == "columns" and n > d:
        sizes = group_sizes(d, n, center=False)
        return orthonormalize_groups(V.mT, sizes, center=False, method=method, precision=precision).mT
    sizes = group_sizes(n, d, group_size=group_size, center=center, grouping=grouping)
    return orthonormalize_groups(V, sizes, center=center, method=method, precision=precision)


def orthonormalize_groups(
    V: Float[Tensor, "*batch n d"],
    sizes: tuple[int, ...],
    *,
    center: bool,
    method: str,
    precision: Precision = "auto",
) -> Float[Tensor, "*batch n d"]:
    """Return `orthonormalize` of `V` for groups of rows of the given sizes, equal neighbours in one batch."""
    path = choose_path(V, method, precision)
    if V.numel() == 0:
        return V.clone()
    runs = runs_of_equal_size(sizes)
    # A single part is not split: the gradient of a split is one more copy of the weight.
    parts = [V] if len(runs) == 1 else V.split([size * count for size, count in runs], dim=-2)
    Ws = [
        # Never a reshape to -1: torch.compile is lost in its quotient where shapes vary.
        map_batches([part.unflatten(-2, (count, size)).flatten(0, -3)], center=center, path=path)[0]
        for part, (size, count) in zip(parts, runs, strict=True)
    ]
    Ws = [W.reshape(part.shape) for W, part in zip(Ws, parts, strict=True)]
    return Ws[0] if len(Ws) == 1 else torch.cat(Ws, dim=-2)
