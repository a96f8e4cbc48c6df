"""The transformation of a matrix whose columns are spread over ranks."""

from itertools import accumulate

import torch
from jaxtyping import Float
from torch import Tensor

from orthonorm.functional import inverse_sqrt

from ._collectives import Collective, gather_pieces, sum_over_ranks, sum_to_pieces

__all__ = ["orthonormalize_columns"]

# Note [columns over ranks]
# With V = [V_1 ... V_R] by columns, Sigma = sum_r V_r V_r^T and W_r = Sigma^{-1/2} V_r: what the ranks have to tell
# each other is N_G x N_G a group and one mean a row, whatever the number of columns. The Gram matrices are summed onto
# the ranks (a reduce-scatter: each gets its share of the groups), each inverse square root is computed once and goes to
# all.
# Groups of fewer rows than the largest are filled up with a diagonal of their mean eigenvalue, which leaves their own
# block as it is. The backward goes the same ways in reverse.


def orthonormalize_columns(
    V: Float[Tensor, "n columns"],
    sizes: tuple[int, ...],
    group: Collective,
    *,
    d: int,
    center: bool = True,
    method: str = "auto",
) -> Float[Tensor, "n columns"]:
    r"""Return this rank's columns of the orthonormal matrix of all ranks' columns; every rank calls it.

    $$W_r = \Sigma^{-1/2} (V_r - \bar V), \qquad \Sigma = \sum_r (V_r - \bar V)(V_r - \bar V)^T$$

    Gradients are those of one loss of which every rank computes a part; they are right to every order.

    Args:
        V: this rank's columns, any number of them.
        sizes: rows of each group.
        group: the ranks.
        d: columns of all ranks together.
        center: subtract each row's mean, over all ranks, first.
        method: as in `orthonorm.functional.inverse_sqrt`.

    Raises:
        ValueError: if the sizes do not sum to the rows of `V`.

    Source: equation (3) of the paper; Mathematics (1): Sigma is a sum over columns.
    """
    if sum(sizes) != len(V):
        raise ValueError(f"the sizes of the groups must sum to the {len(V)} rows; got {sizes}.")
    X = V.to(torch.float64)
    if center:
        X = X - sum_over_ranks(X.sum(-1, keepdim=True), group) / d
    W = _by_groups(_inverse_sqrts(_grams(X, sizes), sizes, group, method), X, sizes)
    if V.dtype == torch.float64:
        # Sigma is good to eps cond(V)^2 only: one step of Newton's iteration for the polar factor squares the error.
        grams = sum_over_ranks(_grams(W, sizes), group)
        W = 1.5 * W - 0.5 * _by_groups(grams, W, sizes)
    return W.to(V.dtype)


def _grams(X: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return the Gram matrix of each group of rows, filled up with zeros to the largest: (groups, s, s)."""
    s = max(sizes)
    return torch.stack([torch.nn.functional.pad(x @ x.mT, (0, s - len(x), 0, s - len(x))) for x in X.split(sizes)])


def _by_groups(small: Tensor, X: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Return the product of each group's matrix with its rows."""
    starts = accumulate(sizes, initial=0)
    parts = [P[:n, :n] @ X[i : i + n] for P, i, n in zip(small, starts, sizes, strict=False)]
    return torch.cat(parts)


def _inverse_sqrts(grams: Tensor, sizes: tuple[int, ...], group: Collective, method: str) -> Tensor:
    """Return the inverse square root of each Gram matrix summed over ranks; each rank computes its share of them."""
    ranks, rank = torch.distributed.get_world_size(group), torch.distributed.get_rank(group)
    held = -(-len(sizes) // ranks)
    s = grams.shape[-1]
    padded = torch.nn.functional.pad(grams, (0, 0, 0, 0, 0, held * ranks - len(sizes)))
    mine = sum_to_pieces(padded, group)
    rows = torch.tensor([*sizes, *[0] * (held * ranks - len(sizes))], device=grams.device)[rank * held :][:held]
    empty = torch.arange(s, device=grams.device) >= rows.unsqueeze(-1)
    trace = mine.detach().diagonal(dim1=-2, dim2=-1).sum(-1, keepdim=True)
    fill = torch.where(rows.unsqueeze(-1) > 0, trace / rows.clamp(min=1).unsqueeze(-1), torch.ones_like(trace))
    roots = inverse_sqrt(mine + torch.diag_embed(torch.where(empty, fill, torch.zeros_like(fill))), method=method)
    return gather_pieces(roots, group)[: len(sizes)]
