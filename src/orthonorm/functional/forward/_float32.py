"""The forward pass in float32: by an eigendecomposition whose values are read, or by matrix products alone."""

import math
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from orthonorm.functional._methods import (
    ONE_PASS,
    condition_number,
    coupled_newton,
    newton_scales,
    outermost,
    values_may_be_read,
)
from orthonorm.functional._precision import power_of_two_below

from ._blocks import Buffer, split, split_into_blocks

__all__ = ["transform_by_products", "transform_by_values"]

# Note [passes in float32]
# A Gram matrix in float32 squares the condition number: one pass leaves an error of some 3e-7 cond^2. On a CPU in eager
# mode the eigenvalues of Sigma are known, and reading them costs nothing. The worst matrix of the call decides:
#
# condition number   computed                            W W^T - I   W to exact   gradient   (n = 16 to 512, square too)
# up to 4            one pass                            7e-6        3e-6         8e-6
# up to 25           and a cubic step                    1e-6        6e-6         8e-6
# beyond             in float64                          1e-7        3e-8         5e-8 cond
#
# The cubic step T = (3 I - W W^T) / 2, W := T W, P := sym(T P), squares the error of orthonormality. It leaves that of
# *which* orthonormal matrix is reached, 1e-8 cond^2, for which reason it ends at 25. All matrices of a call go the same
# way: one that needs float64 makes the others slower, never worse. The means are taken off the products,
# Sigma = V V^T - d m m^T and W = P V - (P m) 1^T, so that no centred copy of V is written; where they are so large that
# this costs digits, and at sizes whose squares are no numbers, float64 takes over too.
#
# Elsewhere, on accelerators and where operators are recorded, no value is read: two passes by matrix products,
#     P0 = S^{-1/2},  W0 = P0 X,  P1 = (W0 W0^T)^{-1/2},  W = P1 W0,  P = sym(P1 P0).
# The first pass stops before it has converged, since the second one goes on anyway: P1 P0 is right whatever polynomial
# of S P0 is. Largest over log-spaced, two-level and one small singular value, 64 x 64, 64 x 576 and 256 x 288 (the row
# of 7 + 7 steps: 16 to 512 rows, square too), with S + shift |S|_F I in place of S in the
# first pass; distance and gradient are those of the condition numbers 10, 100 and 1e3:
#
# shift   steps     W W^T - I up to 1e3   distance to exact         gradient
# 1e-6    11 + 5    6e-6                  2e-6   9e-5   1.1e-3      5e-6   8e-5   1.0e-3
# 3e-6    11 + 5    8e-5                  2e-6   8e-5   4e-4        4e-6   7e-5   8e-4
# 3e-6    7 + 7     1.1e-5                4e-6   9e-5   3e-4        8e-6   9e-5   4e-4
# 1e-5    7 + 6     2.2e-5                2e-6   5e-5   1e-4        4e-6   5e-5   3e-4
# 1e-5    6 + 6     6e-3                  3e-6   4e-5   4e-3        4e-6   4e-5   5e-2
#
# The shift keeps S positive where rounding would not, which an iteration to convergence needs. Seven steps multiply by
# a bounded number whatever the sign, and gain nothing by it: W W^T - I and the distance to exact, 7 + 7 steps, 16 x 16,
# 64 x 64, 128 x 128, 64 x 576 and 256 x 288, by condition number. So there is no shift.
#
# shift   10               100              1e3              3e3              1e4              a zero direction
# 0       4e-6   4e-6      4e-6   9e-5      9e-6   2.2e-4    4.5e-5 3.0e-4    0.15   0.10      0.4    0.25
# 3e-6    5e-6   3e-6      5e-6   9e-5      1e-5   2.2e-4    6.5e-5 2.9e-4    0.21   0.13      0.4    0.25
#
# Beyond 1e3 W is finite and its singular values are at most 1 + 1e-3; precision="float64" is right there.

CUBIC = 25.0  # up to this condition number a cubic step makes one pass in float32 exact enough


def transform_by_values(Vs: Sequence[Tensor], center: bool) -> tuple[Tensor, ...] | None:
    """Return P, the eigenvectors, the eigenvalues of P and each W; None where the values ask for float64."""
    if not all(map(values_may_be_read, Vs)):
        return None
    blocks = [block.float() for V in Vs for block in split_into_blocks(V, torch.float32)]
    means, grams = [], []
    for X in blocks:
        S = torch.bmm(X, X.mT)
        if center:
            mean = X.mean(-1, keepdim=True)
            S.baddbmm_(mean, mean.mT, alpha=-X.shape[-1])
            means.append(mean)
        grams.append(S)
    S = grams[0] if len(grams) == 1 else torch.cat(grams)
    # Beyond these the squares come near the ends of the range of float32. No comparison holds of what is no number.
    if not 1e-28 < float(torch.linalg.vector_norm(S)) < 1e28:
        return None
    s, D = torch.linalg.eigh(S)
    ends = outermost(s)
    condition = condition_number(ends) ** 0.5
    if not condition <= CUBIC or (center and _means_are_large(ends, means, blocks)):
        return None
    p = s.rsqrt()
    P = torch.bmm(D * p.unsqueeze(-2), D.mT)
    Ws = [torch.empty(V.shape, dtype=torch.float32, device=V.device) for V in Vs]
    places = [place for W in Ws for place in split_into_blocks(W, torch.float32)]
    polish = condition > ONE_PASS
    T = _fill(places, blocks, means, P, polish)
    if T is not None:
        P = torch.bmm(T, P)
        P = torch.lerp(P, P.mT, 0.5)
    return P, D, p, *(W.to(V.dtype) for W, V in zip(Ws, Vs, strict=True))


def _fill(
    places: Sequence[Tensor], blocks: Sequence[Tensor], means: Sequence[Tensor], P: Tensor, polish: bool
) -> Tensor | None:
    """Put W of each block in its place; return the T = (3 I - W W^T) / 2 by which a cubic step multiplied it."""
    Ps = split(P, [len(X) for X in blocks])
    if not polish:
        for i, (X, place) in enumerate(zip(blocks, places, strict=True)):
            torch.bmm(Ps[i], X, out=place)
            if means:
                place.sub_(torch.bmm(Ps[i], means[i]))
        return None
    eye = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    scratch, Ts = Buffer(blocks, torch.float32), []
    for i, (X, place) in enumerate(zip(blocks, places, strict=True)):
        W = torch.bmm(Ps[i], X, out=scratch.like(X))
        if means:
            W.sub_(torch.bmm(Ps[i], means[i]))
        Ts.append(torch.baddbmm(eye, W, W.mT, beta=1.5, alpha=-0.5))
        torch.bmm(Ts[-1], W, out=place)
    return Ts[0] if len(Ts) == 1 else torch.cat(Ts)


def _means_are_large(ends: list[list[float]], means: Sequence[Tensor], blocks: Sequence[Tensor]) -> bool:
    """Return whether taking the means off the products, not off the rows, would cost digits."""
    largest = chain.from_iterable(
        (X.shape[-1] * m * m for m in torch.linalg.vector_norm(mean, math.inf, dim=(-2, -1)).tolist())
        for mean, X in zip(means, blocks, strict=True)
    )
    return any(m > end[-1] / 4 for m, end in zip(largest, ends, strict=True))


def transform_by_products(Vs: Sequence[Tensor], center: bool) -> tuple[Tensor, ...]:
    """Return P, what the method "newton" wants with it, and each W: two passes that look at no value."""
    Xs = [V.float() for V in Vs]
    scales = [power_of_two_below(X) for X in Xs]
    Xs = [X / scale for X, scale in zip(Xs, scales, strict=True)]
    if center:
        for _ in range(2):  # what the rounding of a large mean leaves, the second time takes off
            Xs = [X - X.mean(-1, keepdim=True) for X in Xs]
    counts = [len(X) for X in Xs]
    first, second = newton_scales(1.7e-3, 0.6), newton_scales(0.05, 1 - 1e-7)
    S = torch.cat([torch.bmm(X, X.mT) for X in Xs])
    eye = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
    size = torch.linalg.matrix_norm(S, keepdim=True)
    size = torch.where(size > 0, size, 1.0)
    P0 = coupled_newton(S / size, first) / size.sqrt()
    Ws = [torch.bmm(p, X) for p, X in zip(split(P0, counts), Xs, strict=True)]
    P1 = coupled_newton(torch.cat([torch.bmm(W, W.mT) for W in Ws]), second)
    Ws = [torch.bmm(p, W) for p, W in zip(split(P1, counts), Ws, strict=True)]
    P = torch.bmm(P1, P0)
    P, scale = torch.lerp(P, P.mT, 0.5), torch.cat(scales)
    # Of P itself the squares may be too small to be numbers.
    bound = torch.linalg.matrix_norm(P, keepdim=True) / scale
    return P / scale, eye.expand_as(P), bound.squeeze(-1), *(W.to(V.dtype) for W, V in zip(Ws, Vs, strict=True))
