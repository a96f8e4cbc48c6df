"""Weights, gradients and measures that the optimizer tests share."""

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from orthonorm.functional import haar, matrix_layout
from orthonorm.functional.stiefel._retractions import LEGAL_PAIRS
from orthonorm.optim import Landing, StiefelAdam, StiefelMuon, StiefelSGD

PAIRS = list(LEGAL_PAIRS)
OPTIMIZERS = {
    "sgd": (StiefelSGD, {}),
    "momentum": (StiefelSGD, {"momentum": 0.9}),
    "nesterov": (StiefelSGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (StiefelAdam, {}),
    "landing": (Landing, {"momentum": 0.9}),
    "muon": (StiefelMuon, {"momentum": 0.9}),
}


def taken(cls: type, metric: str | None, retraction: str) -> dict[str, Any]:
    """Those of two options that an optimizer has."""
    options = {"metric": metric, "retraction": retraction}
    return {key: value for key, value in options.items() if key in signature(cls).parameters}


# Every optimizer with each of its metrics and retractions.
WAYS = {
    f"{name}-{'-'.join(map(str, way.values()))}": (cls, {**options, **way})
    for name, (cls, options) in OPTIMIZERS.items()
    for way in (taken(cls, *pair) for pair in PAIRS)
}


def bound(cls: type, rounding: float) -> float:
    """How far from the manifold an optimizer's weights may be: rounding, or eps where it says so."""
    return 0.5 if cls is Landing else rounding


def blocks_of(weight: Tensor, group_size: int | None) -> list[Tensor]:
    """The groups, read by hand: rows of a wide weight, columns of a tall one, tensor_split."""
    matrix = weight.detach().flatten(1)
    n, d = matrix.shape
    if group_size is None and n > d:
        return [matrix.mT]
    k = -(-n // min(group_size or d, d))
    return list(torch.tensor_split(matrix, k))


SHAPES: dict[str, tuple[tuple[int, ...], int | None]] = {
    "wide": ((4, 9), None),
    "square": ((5, 5), None),
    "tall": ((9, 4), None),
    "row": ((1, 6), None),
    "column": ((6, 1), None),
    "groups": ((10, 6), 4),
    "groups of a tall weight": ((9, 4), 3),
    "one group by size": ((4, 9), 100),
    "conv1d": ((6, 3, 5), None),
    "conv2d": ((6, 2, 3, 3), None),
    "conv3d": ((6, 1, 2, 3, 2), None),
    "conv2d tall": ((20, 1, 3, 3), None),
    "conv2d groups": ((20, 1, 3, 3), 6),
}


def on_manifold(
    shape: tuple[int, ...], group_size: int | None = None, seed: int = 0, dtype=torch.float64
) -> nn.Parameter:
    """A parameter of any shape whose groups are on the manifold."""
    generator = torch.Generator().manual_seed(seed)
    layout = matrix_layout(shape, group_size)
    if layout.transposed:
        matrix = haar(layout.d, layout.n, generator=generator, dtype=dtype).mT
    else:
        blocks = [haar(k, layout.d, generator=generator, dtype=dtype) for k in layout.sizes]
        matrix = torch.cat(blocks)
    return nn.Parameter(matrix.reshape(shape).contiguous())


def off_manifold(weight: Tensor, group_size: int | None = None) -> float:
    """Largest entry of |W W^T - I| over the groups, in float64."""
    layout = matrix_layout(tuple(weight.shape), group_size)
    worst = 0.0
    for block in layout.blocks(weight.detach().double()):
        worst = max(worst, (block @ block.mT - torch.eye(len(block)).double()).abs().max().item())
    return worst


def noise(shape: tuple[int, ...], seed: int, dtype=torch.float64) -> Tensor:
    """A gradient."""
    generator = torch.Generator().manual_seed(1000 + seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def weight(shape=(3, 5), dtype=torch.float32, value=1.0):
    """A parameter of one value."""
    return nn.Parameter(torch.full(shape, value, dtype=dtype))


def with_sparse_gradient(cls, **options):
    """An optimizer over a group with a dense gradient and, after it, one with a sparse gradient; and the weights."""
    dense, table = nn.Parameter(torch.ones(4)), nn.Embedding(5, 3, sparse=True, dtype=torch.float64)
    with torch.no_grad():
        table.weight.copy_(on_manifold((5, 3)))
    optimizer = cls([{"params": [dense], "manifold": False}, {"params": [table.weight], **options}], lr=0.1)
    (table(torch.tensor([1])).sum() + dense.sum()).backward()
    return optimizer, [dense, table.weight]
