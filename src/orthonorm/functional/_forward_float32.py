"""The forward pass in float32: by an eigendecomposition whose values are read, or by matrix products alone."""

import math
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from ._blocks import Buffer, split_into_blocks
from ._methods import ONE_PASS, condition_number, coupled_newton, newton_scales, outermost, values_may_be_read
from ._precision import power_of_two_below

__all__ = ["transform_by_products", "transform_by_values"]


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
    if not condition <= 25.0 or (center and _means_are_large(ends, means, blocks)):
        return None
    p = s.rsqrt()
    P = torch.bmm(D * p.unsqueeze(-2), D.mT)
    Ws = [torch.empty(V.shape, dtype=torch.float32, device=V.device) for V in Vs]
    places = [place for W in Ws for place in split_into_blocks(W, torch.float32)]
    Ps = [P] if len(blocks) == 1 else list(P.split([len(X) for X in blocks]))
    polish = condition > ONE_PASS
    scratch = Buffer(blocks, torch.float32) if polish else None
    for i, (X, place) in enumerate(zip(blocks, places, strict=True)):
        W = torch.bmm(Ps[i], X, out=place if scratch is None else scratch.like(X))
        if center:
            W.sub_(torch.bmm(Ps[i], means[i]))
        if polish:
            Ps[i] = _cubic_step(Ps[i], W, place)
    if polish:
        P = Ps[0] if len(blocks) == 1 else torch.cat(Ps)
    return P, D, p, *(W.to(V.dtype) for W, V in zip(Ws, Vs, strict=True))


def _cubic_step(P: Tensor, W: Tensor, out: Tensor) -> Tensor:
    """Return the corrected P, and T W in `out`, with T = (3 I - W W^T) / 2."""
    eye = torch.eye(P.shape[-1], dtype=P.dtype, device=P.device)
    T = torch.baddbmm(eye, W, W.mT, beta=1.5, alpha=-0.5)
    torch.bmm(T, W, out=out)
    P = torch.bmm(T, P)
    return torch.lerp(P, P.mT, 0.5)


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
    shift, first, second = 3e-6, newton_scales(1.7e-3, 0.6), newton_scales(0.05, 1 - 1e-7)
    S = torch.cat([torch.bmm(X, X.mT) for X in Xs])
    eye = torch.eye(S.shape[-1], dtype=S.dtype, device=S.device)
    size = torch.linalg.matrix_norm(S, keepdim=True)
    size = torch.where(size > 0, size, 1.0)
    P0 = coupled_newton(torch.add(S / size, eye, alpha=shift) / (1 + shift), first)
    P0 = P0 / size.sqrt()
    Ws = [torch.bmm(p, X) for p, X in zip(P0.split(counts), Xs, strict=True)]
    P1 = coupled_newton(torch.cat([torch.bmm(W, W.mT) for W in Ws]), second)
    Ws = [torch.bmm(p, W) for p, W in zip(P1.split(counts), Ws, strict=True)]
    P = torch.bmm(P1, P0)
    P, scale = torch.lerp(P, P.mT, 0.5), torch.cat(scales)
    # Of P itself the squares may be too small to be numbers.
    bound = torch.linalg.matrix_norm(P, keepdim=True) / scale
    return P / scale, eye.expand_as(P), bound.squeeze(-1), *(W.to(V.dtype) for W, V in zip(Ws, Vs, strict=True))
