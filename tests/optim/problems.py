"""Weights, gradients and measures that the optimizer tests share."""

import torch
from torch import Tensor, nn

from orthonorm.functional import haar, matrix_layout
from orthonorm.functional.stiefel._retractions import LEGAL_PAIRS
from orthonorm.optim import StiefelAdam, StiefelSGD

PAIRS = list(LEGAL_PAIRS)
OPTIMIZERS = {
    "sgd": (StiefelSGD, {}),
    "momentum": (StiefelSGD, {"momentum": 0.9}),
    "nesterov": (StiefelSGD, {"momentum": 0.9, "nesterov": True}),
    "adam": (StiefelAdam, {}),
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
