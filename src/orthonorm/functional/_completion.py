"""A deficient matrix completed by fixed directions, so that an orthonormal initial value exists."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from ._methods import relative_floor
from ._precision import power_of_two_below, working_dtype

__all__ = ["complete_rank", "fixed_rows"]

# Note [completion]
# V_C = U S R^T has lost the directions U_0 (left singular vectors of zero singular values): a zero-initialised head, a
# dead or a repeated row. The orthonormal matrix nearest to V_C is then not unique: U R^T + U_0 B for any orthonormal B
# orthogonal to R. We take the B nearest to U_0^T F, where F is a fixed orthonormal matrix that depends on (n, d) only
# (cosines, of zero mean), so that the initial value is the same on every machine and no random number is drawn.


def fixed_rows(n: int, d: int, *, dtype: torch.dtype, device: torch.device | None = None) -> Float[Tensor, "n d"]:
    """Return `n` orthonormal rows of length `d` and, for `n < d`, of zero mean: the first cosines of the DCT-II.

    Examples:
        >>> F = fixed_rows(3, 8, dtype=torch.float64)
        >>> torch.dist(F @ F.T, torch.eye(3)) < 1e-12, F.sum(1).abs().max() < 1e-12
        (tensor(True), tensor(True))
    """
    k = torch.arange(1, n + 1, dtype=dtype, device=device) % d
    x = torch.arange(d, dtype=dtype, device=device) + 0.5
    rows = math.sqrt(2 / d) * torch.cos(torch.outer(k, x) * (math.pi / d))
    return torch.where((k == 0).unsqueeze(-1), rows / math.sqrt(2), rows)


def complete_rank(V: Float[Tensor, "n d"], *, center: bool) -> tuple[Float[Tensor, "n d"], int]:
    """Return `V` with its lost directions filled, and how many they were; `V` itself where none is lost.

    A direction is lost where its singular value is below the relative floor of the transformation itself, or is one
    that the rounding of V's entries alone could have left (of half precision that of float32 counts, as its numbers are
    exact where Sigma is formed and its square Gaussian matrices have directions below its own rounding). A matrix that
    is not finite is returned as it is.
    """
    X = V.detach().to(working_dtype(V))
    scale = power_of_two_below(X)  # sums and squares of the largest and the smallest float64 are no numbers
    X = X / scale
    # Errors of at most eps times the entries, of random signs, have singular values up to their size (sqrt n + sqrt d).
    n, d = X.shape
    eps = min(torch.finfo(V.dtype).eps, torch.finfo(torch.float32).eps)
    noise = eps * X.square().mean().sqrt() * (math.sqrt(n) + math.sqrt(d))
    mean = X.mean(-1, keepdim=True) if center else torch.zeros_like(X[:, :1])
    X = X - mean
    if not bool(torch.isfinite(X).all()):
        return V, 0
    floor = relative_floor(X.dtype) ** 0.5
    values = torch.linalg.eigvalsh(X @ X.T)
    if values[0] > torch.maximum(max(4 * floor**2, 1e-12) * values[-1], 4 * noise**2):
        return V, 0  # far from deficient: the slow SVD is not needed
    U, S, Rt = torch.linalg.svd(X, full_matrices=False)
    lost = int((torch.maximum(floor * S[0], noise) >= S).sum())
    if lost == 0:
        return V, 0
    kept = len(S) - lost
    pool = fixed_rows(*X.shape, dtype=X.dtype, device=X.device)
    pool = pool - (pool @ Rt[:kept].T) @ Rt[:kept]
    # An orthonormal basis of what the fixed rows offer outside R: at least `lost` directions.
    _, strength, basis = torch.linalg.svd(pool, full_matrices=False)
    basis = basis[strength > 1e-6]
    a, _, b = torch.linalg.svd(U[:, kept:].T @ pool @ basis.T, full_matrices=False)
    size = X.norm() / math.sqrt(kept) if kept else 1.0
    return ((mean + X + size * U[:, kept:] @ (a @ b) @ basis) * scale).to(V.dtype), lost
