"""`P_var`: the orthogonal transformation that the paper compares OLM with, and that fails."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize


class VarianceOrthogonal(nn.Module):
    r"""``W = Lambda^{-1/2} D^T (V - mean)`` with ``Sigma = D Lambda D^T``, by groups of rows.

    Rows are orthonormal within a group, as OLM's are, but the gradient (autograd's through
    ``eigh``) has the pole ``1 / (s_i - s_j)``, and the signs of the eigenvectors are arbitrary from
    step to step (errata 1 and 7). A ``V`` that is not finite gives a ``W`` of NaN.

    Args:
        group_size: rows of a group at most, cut to ``d - 1``; the last group may be smaller.

    Reference: the paper's P_var, section "Minimizing distortions".
    """

    def __init__(self, group_size: int) -> None:
        super().__init__()
        self.group_size = group_size

    def forward(self, weight: Float[Tensor, "n *d"]) -> Float[Tensor, "n *d"]:
        """The orthonormal weight."""
        rows = weight.flatten(1)
        groups = rows.split(min(self.group_size, rows.shape[1] - 1))
        return torch.cat([_whiten(group) for group in groups]).reshape(weight.shape)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """``V`` starts as the weight that was there."""
        return weight


def _whiten(v: Float[Tensor, "m d"]) -> Float[Tensor, "m d"]:
    centred = v - v.mean(1, keepdim=True)
    sigma = centred @ centred.mT
    # LAPACK may raise on NaN; the identity takes its place and NaN is put back into the result.
    finite = torch.isfinite(sigma).all()
    safe = torch.where(finite, sigma, torch.eye(len(v), dtype=v.dtype, device=v.device))
    values, vectors = torch.linalg.eigh(safe)
    whitened = values.rsqrt().unsqueeze(1) * (vectors.mT @ centred)
    return torch.where(finite, whitened, torch.full_like(whitened, torch.nan))


def register_variance_(module: nn.Module, name: str, group_size: int) -> None:
    """Re-parametrise ``module.name`` by ``VarianceOrthogonal``, in place."""
    parametrize.register_parametrization(module, name, VarianceOrthogonal(group_size))
