"""The tangent vector of spectral norm one along which a linear function falls most."""

from typing import NamedTuple

import torch
from torch import Tensor

from orthonorm.functional._precision import working_dtype
from orthonorm.functional.stiefel._manifold import project_tangent

__all__ = ["steepest_tangent"]

_ITERATIONS = 100
# Singular values are smoothed by this share of their root mean square, first and from one iteration to the next.
_FIRST_SMOOTHING, _SMOOTHING_FACTOR = 0.1, 0.9
# For a square weight, where one iteration is enough.
_LEAST_SMOOTHING = 1e-7


def steepest_tangent(W: Tensor, D: Tensor, noise: Tensor, tolerance: float) -> Tensor:
    """Minimise `<D, X>` over tangent `X` at `W` with `|X|_2 <= 1`, to a share `tolerance` of the minimum.

    Args:
        W: a batch `(m, n, d)` on the manifold, `n <= d`.
        D: the linear functions, same shape; only their tangent parts matter.
        noise: `(m, 1, 1)`; where all entries of the tangent part are that small, X is zero.
        tolerance: the duality gap at which a matrix is left, relative to the dual value.

    Returns:
        X, tangent and of spectral norm at most 1 to rounding; NaN where D or W is not finite.
    """
    finite = (torch.isfinite(D) & torch.isfinite(W)).all(-1).all(-1)[..., None, None]
    W = torch.where(finite, W, 0.0)
    size = D.abs().amax((-2, -1), keepdim=True)
    D = torch.where(finite, D / size.clamp_min(torch.finfo(D.dtype).tiny), 0.0)
    C = D @ W.mT
    square = W.shape[-2] == W.shape[-1]
    N = torch.zeros_like(D) if square else torch.baddbmm(D, C, W, alpha=-1)
    wide = working_dtype(W)
    # From N as it is stored: H divides by small singular values, and would make much of a rounding of Q.
    Q = N.to(wide) @ N.to(wide).mT
    turn, stretch = _solve((C - C.mT).to(wide) / 2, Q, tolerance, square)
    X = -project_tangent(W, torch.baddbmm(turn.to(W.dtype) @ W, stretch.to(W.dtype), N))
    return torch.where(finite, torch.where(size > noise, X, 0.0), torch.nan)


class _Found(NamedTuple):
    """The best of a batch so far."""

    turn: Tensor
    stretch: Tensor
    slope: Tensor
    """`-<D, X>` at the X that they make, one a matrix."""
    bound: Tensor
    """The smallest dual value seen: no X has a larger slope."""


# Note [The steepest tangent vector]
# Write D = A W + N + (symmetric) W with A skew and N W^T = 0; a tangent X does not see the symmetric part. With a
# symmetric multiplier S, <D, X> = <A W + N + S W, X> for every tangent X, so that the largest slope is at most the
# nuclear norm |M|_*, M = (A + S) W + N, and by duality it is the smallest of these over S. M M^T = L L^T + Q with
# L = A + S and Q = N N^T, so that everything is n x n: |M|_* = tr (L L^T + Q)^{1/2}.
#
# Minimise by reweighting: for H = (M M^T)^{-1/2} at the present S, |M|_* <= tr(H M M^T + H^{-1}) / 2 with equality at
# it, and the right side is least where H (A + S) is skew. In the eigenvectors of M M^T, with singular values s_i, that
# is S_ij = A_ij (s_i - s_j) / (s_i + s_j), and then H (A + S) = T with T_ij = 2 A_ij / (s_i + s_j).
# So X = -(T W + H N) is tangent at every iteration, not only in the end. Divided by its spectral norm it is a candidate
# with slope (<A, T> + tr H Q) / |X|_2, which the dual value |M|_* encloses from above: the gap is known.
#
# Two things make it fast. Small singular values, whose weights are large, are smoothed: s_i^2 + (share * rms)^2 with a
# share that falls (the candidate and the bound stay exact). And S is extrapolated as Nesterov does, from scratch where
# it turns back. For n = d, N is zero, S = 0 is right at once, and X is minus the polar factor of A, times W.
def _solve(A: Tensor, Q: Tensor, tolerance: float, square: bool) -> tuple[Tensor, Tensor]:
    """Return `T` and `H` of a batch, divided by the spectral norm of their X."""
    n = A.shape[-1]
    mean_square = (A.square().sum((-2, -1)) + Q.diagonal(dim1=-2, dim2=-1).sum(-1))[:, None] / n
    S = last = torch.zeros_like(A)
    momentum = torch.ones_like(mean_square)[..., None]
    found = _Found(S, S, S[:, 0, 0], torch.full_like(S[:, 0, 0], torch.inf))
    done = torch.zeros_like(found.slope, dtype=torch.bool)
    for k in range(_ITERATIONS):
        share = _LEAST_SMOOTHING if square else max(_FIRST_SMOOTHING * _SMOOTHING_FACTOR**k, tolerance / 10)
        S_new, found = _reweight(A, Q, S, share**2 * mean_square, found, done)
        done = done | (found.slope >= (1 - tolerance) * found.bound)
        if bool(done.all()):
            break
        turned_back = ((S - S_new) * (S_new - last)).sum((-2, -1), keepdim=True) > 0
        before = torch.where(turned_back, 1.0, momentum)
        momentum = (1 + (1 + 4 * before * before).sqrt()) / 2
        S, last = S_new + (before - 1) / momentum * (S_new - last), S_new
    return found.turn, found.stretch


def _reweight(A: Tensor, Q: Tensor, S: Tensor, smoothing: Tensor, found: _Found, done: Tensor) -> tuple[Tensor, _Found]:
    """The next multiplier, and the best of what was found and the candidate of this one, for those not done."""
    tiny = torch.finfo(A.dtype).tiny
    L = A + S
    squares, U = torch.linalg.eigh(torch.baddbmm(Q, L, L.mT))
    squares = squares.clamp_min(0)
    s = (squares + smoothing).sqrt().clamp_min(tiny)
    A, Q = U.mT @ A @ U, U.mT @ Q @ U
    sums = s[:, :, None] + s[:, None, :]
    T, h = 2 * A / sums, 1 / s
    gram = torch.baddbmm(h[:, :, None] * Q * h[:, None, :], T, T.mT)
    norm = torch.linalg.eigvalsh(gram)[:, -1].clamp_min(tiny).sqrt()
    slope = ((A * T).sum((-2, -1)) + (h * Q.diagonal(dim1=-2, dim2=-1)).sum(-1)) / norm
    better = ((slope > found.slope) & ~done)[:, None, None]
    best = _Found(
        torch.where(better, U @ (T / norm[:, None, None]) @ U.mT, found.turn),
        torch.where(better, (U * (h / norm[:, None])[:, None, :]) @ U.mT, found.stretch),
        torch.where(better[:, 0, 0], slope, found.slope),
        torch.minimum(found.bound, squares.sqrt().sum(-1)),
    )
    return U @ (A * (s[:, :, None] - s[:, None, :]) / sums) @ U.mT, best
