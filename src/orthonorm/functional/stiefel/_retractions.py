"""Retractions: from a point and a step to the next point on the Stiefel manifold.

All take `W` and `Z` of shape `(..., n, d)`, `n <= d`, and a time `t`, and return a matrix with orthonormal rows that
agrees with `W + t Z` to first order where `Z` is tangent at `W`. Work and memory are on the side `n`:
products of `n x n` with `n x d` and factorizations of `n x n`, never anything `d x d`.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from orthonorm.functional._precision import working_dtype

from ._manifold import add_product, check_rows

__all__ = [
    "check_pair",
    "retract_cayley",
    "retract_polar",
    "retract_qr",
]

# A Gram matrix with this condition number or less costs one pass at most a digit.
_WELL_CONDITIONED = 8.0
# What the long way leaves farther than this many units of rounding from orthonormal had no rank.
_LOST = 100.0


class _Whitening(NamedTuple):
    """A way to take `V` to `F V` with orthonormal rows, from its Gram matrix."""

    whole: Callable[[Tensor, Tensor], Tensor]
    """(G, V) -> `F V`, `F G F^T = I`."""
    part: Callable[[Tensor], Tensor]
    """E -> the first order of `I - F` for `G = I + E`."""


def _triangular_pass(G: Tensor, V: Tensor) -> Tensor:
    """`L^{-1} V` with `G = L L^T`."""
    L = torch.linalg.cholesky_ex(G)[0].to(V.dtype)
    # From the right on the transposes: LAPACK then needs no copy of V, 2 to 3 times faster.
    return torch.linalg.solve_triangular(L.mT, V.mT, upper=True, left=False).mT


def _triangular_part(E: Tensor) -> Tensor:
    part = E.tril()
    part.diagonal(dim1=-2, dim2=-1).mul_(0.5)
    return part


def _symmetric_pass(G: Tensor, V: Tensor) -> Tensor:
    """`G^{-1/2} V`."""
    s, D = torch.linalg.eigh(G)
    return ((D * s.clamp_min(torch.finfo(G.dtype).tiny).rsqrt().unsqueeze(-2)) @ D.mT).to(V.dtype) @ V


_TRIANGULAR = _Whitening(_triangular_pass, _triangular_part)
_SYMMETRIC = _Whitening(_symmetric_pass, lambda E: E / 2)


# Note [A step that stays near]
# A usual step is short: G = V V^T = I + E with E the square of the step. To first order F is I - part(E), and
# (I - part) G (I - part)^T = I + O(E^2), at most 3 e^2 where e is the largest sum of a row of |E|. So one such product
# is right to rounding where 3 e^2 <= eps / 2, and a second one, on what is left, where 27 e^4 <= eps / 2 (e up to 7e-3
# in float32). These are products alone, a third of the time of a Cholesky factorization and a triangular solve.
def _near_pass(G: Tensor, V: Tensor, part: Callable[[Tensor], Tensor], e: float) -> Tensor:
    F = _near_factor(G, part)
    if 3 * e * e > torch.finfo(V.dtype).eps / 2:
        F = _near_factor(F @ G @ F.mT, part) @ F
    return F @ V


def _near_factor(G: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
    F = -part(_minus_identity(G))
    F.diagonal(dim1=-2, dim2=-1).add_(1)
    return F


def _minus_identity(G: Tensor) -> Tensor:
    E = G.clone()
    E.diagonal(dim1=-2, dim2=-1).sub_(1)
    return E


# Note [One pass or several]
# Whitening by the Gram matrix costs half a Householder factorization but squares the condition
# number: the error is eps cond(V)^2. A usual step has V V^T = W W^T + Z Z^T near I and one pass
# leaves rounding only. After a long step the triangular way takes a second pass: the first has left
# a well conditioned matrix with the same answer, since a lower triangular factor from the left does
# not change it (a symmetric one does, unless it commutes with V V^T to rounding). Where that is not
# enough the first pass starts from a Gram matrix in float64, shifted by its rounding so that it stays
# positive. On an accelerator that way is always taken, because to ask would be to wait.
def _whiten(
    V: Tensor,
    way: _Whitening,
    tries: int,
    stay: Tensor,
    given: Tensor,
) -> Tensor:
    """Orthonormalize the rows of `V`; groups that lost their rank keep `stay`."""
    Q = V
    for left in reversed(range(tries if V.device.type == "cpu" and V.numel() > 0 else 0)):
        G = Q @ Q.mT
        e = _minus_identity(G).abs().sum(-1).max().item()
        if 27 * e**4 <= torch.finfo(V.dtype).eps / 2:
            return _near_pass(G, Q, way.part, e)
        if _condition_bound(G).max().item() <= _WELL_CONDITIONED:
            return way.whole(G, Q)
        if left:
            Q = way.whole(_guard(G), Q)
    return _whiten_anything(V, way.whole, stay, given)


def _whiten_anything(V: Tensor, one_pass: Callable[[Tensor, Tensor], Tensor], stay: Tensor, given: Tensor) -> Tensor:
    """The long way, which looks at no value."""
    finite = torch.isfinite(given).all(-1).all(-1)[..., None, None]
    Q = torch.where(torch.isfinite(V).all(-1).all(-1)[..., None, None], V, stay.nan_to_num(0.0))
    Q = Q / Q.abs().amax((-2, -1), keepdim=True).clamp_min(torch.finfo(Q.dtype).tiny)
    wide = working_dtype(V)
    for _ in range(2):
        G = Q.to(wide) @ Q.to(wide).mT
        shift = 4 * G.shape[-1] * torch.finfo(wide).eps
        Q = one_pass(_guard(G + torch.diag_embed(shift * G.diagonal(dim1=-2, dim2=-1))), Q)
    Q = one_pass(_guard(Q @ Q.mT), Q)
    deviation = Q @ Q.mT - torch.eye(Q.shape[-2], dtype=Q.dtype, device=Q.device)
    kept = deviation.abs().amax((-2, -1), keepdim=True) <= _LOST * torch.finfo(Q.dtype).eps
    return torch.where(finite, torch.where(kept, Q, stay), torch.nan)


def _condition_bound(G: Tensor) -> Tensor:
    """Gershgorin's bound on the condition number, one a matrix; infinite or NaN where it has none."""
    sums = G.abs().sum(-1)
    least = torch.sub(2 * G.diagonal(dim1=-2, dim2=-1), sums).amin(-1).clamp_min(0)
    return sums.amax(-1) / least


def _guard(G: Tensor) -> Tensor:
    """Replace Gram matrices that are not finite by I: LAPACK's answer to NaN may be an exception."""
    ok = torch.isfinite(G).all(-1).all(-1)[..., None, None]
    return torch.where(ok, G, torch.eye(G.shape[-1], dtype=G.dtype, device=G.device))


def _step(W: Tensor, Z: Tensor, t: float | Tensor) -> Tensor:
    """`W + t Z` in one pass."""
    return W + t * Z if isinstance(t, Tensor) else torch.add(W, Z, alpha=t)


def retract_qr(
    W: Float[Tensor, "*batch n d"], Z: Float[Tensor, "*batch n d"], t: float | Tensor = 1.0
) -> Float[Tensor, "*batch n d"]:
    """Return the orthogonal factor of `W + t Z` whose triangular factor has a positive diagonal.

    `Q` in `W + t Z = L Q`, `L` lower triangular with positive diagonal, `Q Q^T = I` (unique)

    Args:
        W: on the manifold, float32 or float64.
        Z: the step, tangent or not, same shape.
        t: how far to go along `Z`; a number, or one a matrix, `(..., 1, 1)`.

    Returns:
        `Q`. A matrix of the batch where `Z` is not finite is NaN. Where `W + t Z` has no full rank in its own
        precision, `W` is returned unmoved. Neither touches the others.

    Raises:
        TypeError, ValueError: wrong dtype; `n > d`; shapes that differ.

    Examples:
        >>> W, Z = torch.eye(2, 3), torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
        >>> retract_qr(W, Z)
        tensor([[ 0.7071,  0.7071,  0.0000],
                [-0.7071,  0.7071,  0.0000]])

    Source: The paper's appendix, QR retraction (transposed); Fukaya, Kannan, Nakatsukasa, Yamamoto, Yanagisawa,
    Shifted Cholesky QR, SIAM J. Sci. Comput. 42, 2020.
    """
    check_rows(W, Z)
    return _whiten(_step(W, Z, t), _TRIANGULAR, 2, W, Z)


def retract_polar(
    W: Float[Tensor, "*batch n d"], Z: Float[Tensor, "*batch n d"], t: float | Tensor = 1.0
) -> Float[Tensor, "*batch n d"]:
    """Return the orthonormal matrix nearest to `W + t Z`.

    `(V V^T)^{-1/2} V`, `V = W + t Z`

    Args:
        W: on the manifold, float32 or float64.
        Z: the step, tangent or not, same shape.
        t: how far to go along `Z`; a number, or one a matrix, `(..., 1, 1)`.

    Returns:
        The polar factor. It is NaN, or `W` unmoved, where that of `retract_qr` is.

    Raises:
        TypeError, ValueError: wrong dtype; `n > d`; shapes that differ.

    Examples:
        >>> retract_polar(torch.eye(2, 3), torch.tensor([[0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]))
        tensor([[ 0.7071,  0.7071,  0.0000],
                [-0.7071,  0.7071,  0.0000]])

    Source: Absil, Mahony, Sepulchre, Optimization Algorithms on Matrix Manifolds, 2008, example 4.1.3.
    """
    check_rows(W, Z)
    return _whiten(_step(W, Z, t), _SYMMETRIC, 1, W, Z)


# Note [The Cayley curve on the small side]
# In columns X = W^T the textbook curve is X(1) = (I - A/2)^{-1} (I + A/2) X with A skew, d x d, and
# A X = Z: for Z = X Omega + N, X^T N = 0, A = N X^T - X N^T + X Omega X^T. The answer stays in the
# span of X and N, so try (I - A/2)^{-1} Z = X a + N b: comparing parts gives b = I + a/2 and
# (I - Omega/2 + N^T N / 4) a = Omega - N^T N / 2, one solve n x n with M = I - Omega/2 + N^T N / 4
# whose symmetric part is at least I. Then a = 2 M^{-1} - 2 I, b = M^{-1} and
# X(1) = (2 X + N) M^{-1} - X. Rows are the transpose of this. With Z = -eta (G - W G^T W) it is the
# curve of the skew matrix eta (G^T W - W^T G), W(1) = W (I + A/2) (I - A/2)^{-1}.
def retract_cayley(
    W: Float[Tensor, "*batch n d"], Z: Float[Tensor, "*batch n d"], t: float | Tensor = 1.0
) -> Float[Tensor, "*batch n d"]:
    """Return the point at time `t` of the Cayley curve that leaves `W` with velocity `Z`.

    `M^{-1} (2 W + t N) - W`, `B = Z W^T`, `N = Z - B W`, `M = I - t/2 B + t^2/4 N N^T`;
    equal to `W (I + t/2 A) (I - t/2 A)^{-1}`, `A = W^T Y - Y^T W`, `Y = Z (I - 1/2 W^T W)`

    Args:
        W: on the manifold, float32 or float64.
        Z: the step, tangent at `W` (a part that is not is dropped), same shape.
        t: how far to go along `Z`; a number, or one a matrix, `(..., 1, 1)`.

    Returns:
        The point, with orthonormal rows also where `W` was a little off. It is NaN where that of `retract_qr` is. A
        step too long for its precision leaves `W` unmoved.

    Raises:
        TypeError, ValueError: wrong dtype; `n > d`; shapes that differ.

    Examples:
        >>> retract_cayley(torch.eye(2, 3), torch.tensor([[0.0, 2.0, 0.0], [-2.0, 0.0, 0.0]]))
        tensor([[ 0.,  1.,  0.],
                [-1.,  0.,  0.]])

    Source: The paper's appendix, Cayley transformation, with the skew matrix of Wen and Yin, A feasible method for
    optimization with orthogonality constraints, Math. Program. 142, 2013; the solve is smaller than their 2n x 2n
    one, see Note [The Cayley curve on the small side]; Mathematics (9).
    """
    check_rows(W, Z)
    C = Z @ W.mT
    N = add_product(Z, C, W, -1.0)
    M = ((C.mT - C) * t + (N @ N.mT) * (t * t)) / 4
    M.diagonal(dim1=-2, dim2=-1).add_(1)
    end = torch.linalg.inv_ex(M)[0] @ _step(2 * W, N, t) - W
    return _whiten(end, _TRIANGULAR, 2, W, Z)


RETRACTIONS: dict[str, Callable[..., Tensor]] = {"qr": retract_qr, "polar": retract_polar, "cayley": retract_cayley}
"""By name: from a point W along Z for a time t to the next point."""

# One step of size eta from W along the ordinary gradient G.
LEGAL_PAIRS: dict[tuple[str | None, str], str] = {
    ("euclidean", "qr"): "qf(W - eta (G - 1/2 (G W^T + W G^T) W))",
    ("euclidean", "polar"): "polar(W - eta (G - 1/2 (G W^T + W G^T) W))",
    ("canonical", "qr"): "qf(W - eta (G - W G^T W))",
    ("canonical", "polar"): "polar(W - eta (G - W G^T W))",
    ("canonical", "cayley"): "W (I + eta/2 A) (I - eta/2 A)^{-1}, A = G^T W - W^T G",
    (None, "qr"): "qf(W - eta G)",
    (None, "polar"): "polar(W - eta G)",
}


def check_pair(metric: str | None, retraction: str) -> None:
    """Raise `ValueError` with the table of legal pairs unless (metric, retraction) is one of them.

    Examples:
        >>> check_pair("canonical", "cayley")
    """
    if (metric, retraction) not in LEGAL_PAIRS:
        table = "\n".join(f"  {pair}: W <- {formula}" for pair, formula in LEGAL_PAIRS.items())
        raise ValueError(
            f"metric and retraction must be one of the pairs below; got ({metric!r}, {retraction!r}).\n{table}"
        )
