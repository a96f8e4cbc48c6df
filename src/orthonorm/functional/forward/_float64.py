"""The forward pass in float64 (in float32 on a device without it): one pass, whatever the matrix."""

from collections.abc import Sequence

import torch
from torch import Tensor

from orthonorm.functional._inverse_sqrt import root
from orthonorm.functional._precision import power_of_two_below

from ._blocks import BLOCK_BYTES, Buffer, split, split_into_blocks

__all__ = ["transform_in_float64"]


def _prepare(V: Tensor, scale: Tensor | None, buffer: Buffer | None = None) -> Tensor:
    """Return V in float64, divided by the scale, in memory of its own or the buffer's."""
    X = V.to(torch.float64, copy=True) if buffer is None else buffer.like(V).copy_(V)
    return X if scale is None else X.div_(scale)


def _multiply(P: Tensor, X: Tensor, polish: bool, buffer: Buffer | None = None) -> Tensor:
    """Return W = P X; a step of Newton's iteration for the polar factor squares the error that remains."""
    W = torch.bmm(P, X, out=None if buffer is None else buffer.like(X))
    return torch.baddbmm(W, torch.bmm(W, W.mT), W, beta=1.5, alpha=-0.5) if polish else W


def transform_in_float64(Vs: Sequence[Tensor], center: bool, method: str) -> tuple[Tensor, ...]:
    """Return P and the method's two tensors for all matrices, then the W of each batch."""
    dtype = torch.float64
    # No dtype is wider than float64: a mean or Sigma could overflow, and Sigma is good to eps cond(V)^2 only. So V is
    # scaled first, and the product is polished.
    widest = Vs[0].dtype == dtype
    blocks = [block for V in Vs for block in split_into_blocks(V, dtype)]
    scales = [power_of_two_below(block) if widest else None for block in blocks]
    counts = [len(block) for block in blocks]
    once = len(blocks) == 1 or 8 * sum(block.numel() for block in blocks) <= BLOCK_BYTES
    X, product = (None, None) if once else (Buffer(blocks, dtype), Buffer(blocks, dtype))
    Xs, means, grams = [], [], []
    for V, scale in zip(blocks, scales, strict=True):
        x = _prepare(V, scale, X)
        if center:
            means.append(x.mean(-1, keepdim=True))
            x.sub_(means[-1])
        grams.append(torch.bmm(x, x.mT))
        Xs.append(x)
    P, basis, numbers = root(grams[0] if len(grams) == 1 else torch.cat(grams), method)
    parts = split(P, counts)
    if once:
        Ws = [_multiply(p, x, widest).to(Vs[0].dtype) for p, x in zip(parts, Xs, strict=True)]
    else:
        Ws = [torch.empty_like(V) for V in Vs]
        results = [block for W in Ws for block in split_into_blocks(W, dtype)]
        for i, (V, scale, p, W) in enumerate(zip(blocks, scales, parts, results, strict=True)):
            x = _prepare(V, scale, X)
            W.copy_(_multiply(p, x.sub_(means[i]) if center else x, widest, product))
    if widest:
        scale = torch.cat(scales)  # type: ignore[arg-type]
        P, numbers = P / scale, numbers / scale.squeeze(-1)
    return P, basis, numbers, *Ws
