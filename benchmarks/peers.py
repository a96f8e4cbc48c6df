"""The same transformation as others compute it, and other parametrizations of an orthogonal weight."""

import importlib.util
import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

__all__ = ["EighAutograd", "eigh_autograd", "newton_autograd", "peer_layers", "svd_loop"]

_EPS = 1e-8


def svd_loop(V: Tensor, group: int) -> Tensor:
    """Return W by one SVD of Sigma a group with autograd through it, as the paper's authors do in PyTorch."""
    parts = []
    for part in V.split(group):
        X = part - part.mean(-1, keepdim=True)
        U, s, _ = torch.linalg.svd(X @ X.mT / X.shape[-1])
        P = U @ torch.diag((s + _EPS).rsqrt()) @ U.mT
        parts.append(P @ X / math.sqrt(X.shape[-1]))
    return torch.cat(parts)


def eigh_autograd(V: Tensor, group: int) -> Tensor:
    """Return W by one batched eigendecomposition with autograd through it; `group` divides the rows."""
    X = _centred_groups(V, group)
    s, D = torch.linalg.eigh(X @ X.mT / X.shape[-1])
    P = (D * (s + _EPS).rsqrt().unsqueeze(-2)) @ D.mT
    return (P @ X / math.sqrt(X.shape[-1])).reshape(V.shape)


class EighAutograd(nn.Module):
    """A parametrization by `eigh_autograd`, in the largest groups of equal size that the weight allows."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def forward(self, V: Tensor) -> Tensor:
        """Return the weight."""
        rows = V.flatten(1)
        most = min(self.group, rows.shape[1] - 1)
        size = next(size for size in range(most, 0, -1) if rows.shape[0] % size == 0)
        return eigh_autograd(rows, size).view(V.shape)


def newton_autograd(V: Tensor, group: int, steps: int = 5) -> Tensor:
    """Return W by a few steps of Newton's iteration with autograd through it; `group` divides the rows.

    Source: Huang et al., Controllable Orthogonalization in Training DNNs, CVPR 2020 (ONI), whose five steps are few by
    intention: W is orthonormal for well conditioned V only.
    """
    X = _centred_groups(V, group)
    X = X / torch.linalg.matrix_norm(X, keepdim=True)
    Sigma = X @ X.mT
    B = torch.eye(group, dtype=V.dtype, device=V.device).expand_as(Sigma)
    for _ in range(steps):
        B = 1.5 * B - 0.5 * (B @ B @ B @ Sigma)
    return (B @ X).reshape(V.shape)


def peer_layers(n: int, d: int) -> dict[str, Callable[[], nn.Module]]:
    """Return makers of layers with an orthonormal n x d weight: torch's three maps, and geotorch if installed."""

    def torch_layer(orthogonal_map: str) -> nn.Module:
        return parametrizations.orthogonal(nn.Linear(d, n, bias=False), orthogonal_map=orthogonal_map)

    def geotorch_layer() -> nn.Module:
        import geotorch

        layer = nn.Linear(d, n, bias=False)
        geotorch.orthogonal(layer, "weight")
        return layer

    makers: dict[str, Callable[[], nn.Module]] = {
        f"torch orthogonal, {name}": (lambda name=name: torch_layer(name))
        for name in ("householder", "cayley", "matrix_exp")
    }
    if importlib.util.find_spec("geotorch"):
        makers["geotorch orthogonal"] = geotorch_layer
    return makers


def _centred_groups(V: Tensor, group: int) -> Tensor:
    X = V.view(-1, group, V.shape[-1])
    return X - X.mean(-1, keepdim=True)
