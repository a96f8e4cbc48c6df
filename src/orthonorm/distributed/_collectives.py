"""The three collectives that the exchange needs, as autograd nodes: each one's backward is another one's forward."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = [
    "Collective",
    "all_gather",
    "all_to_all",
    "average_gradient",
    "gather_pieces",
    "reduce_scatter",
    "sum_gradient",
    "sum_over_ranks",
    "sum_to_pieces",
]

# torch 2.14 has new names for two of them and warns of the old ones, which torch 2.6 has.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

Collective = dist.ProcessGroup


def all_gather(piece: Tensor, group: Collective, *, wait: bool = True) -> tuple[Tensor, Any]:
    """Return the pieces (m,) of all ranks, one after another (R m,), and the work to wait for where `wait` is False."""
    full = piece.new_empty(dist.get_world_size(group) * piece.numel())
    work = _all_gather(full, piece.contiguous(), group=group, async_op=not wait)
    return full, work


def reduce_scatter(full: Tensor, group: Collective) -> Tensor:
    """Return this rank's piece (m,) of the sum over ranks of `full` (R m,)."""
    piece = full.new_empty(full.numel() // dist.get_world_size(group))
    _reduce_scatter(piece, full.contiguous(), group=group)
    return piece


def all_to_all(sent: Tensor, received: list[int], counts: list[int], group: Collective) -> Tensor:
    """Return what the ranks sent to this one, `received` numbers from each, having sent them `counts` each."""
    result = sent.new_empty(sum(received))
    dist.all_to_all_single(result, sent.contiguous(), received, counts, group=group)
    return result


class _SumOverRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, group: Collective) -> Tensor:
        ctx.group = group
        total = X.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        # Every rank uses the sum, so every rank's use contributes. Applied as a node: right to every order.
        return _SumOverRanks.apply(grad.contiguous(), ctx.group), None  # type: ignore[return-value]


def sum_over_ranks(X: Tensor, group: Collective) -> Tensor:
    """Return the sum of `X` over ranks, differentiable to every order; each rank is taken to use it in its own way."""
    return _SumOverRanks.apply(X, group)  # type: ignore[return-value]


class _SumToPieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, full: Tensor, group: Collective) -> Tensor:
        ctx.group = group
        return reduce_scatter(full.reshape(-1), group).view(-1, *full.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return _GatherPieces.apply(grad, ctx.group), None  # type: ignore[return-value]


class _GatherPieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, piece: Tensor, group: Collective) -> Tensor:
        ctx.group = group
        return all_gather(piece.reshape(-1), group)[0].view(-1, *piece.shape[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return _SumToPieces.apply(grad, ctx.group), None  # type: ignore[return-value]


def sum_to_pieces(full: Tensor, group: Collective) -> Tensor:
    """Return this rank's part, along the first dimension, of the sum of `full` over ranks; right to every order."""
    return _SumToPieces.apply(full, group)  # type: ignore[return-value]


def gather_pieces(piece: Tensor, group: Collective) -> Tensor:
    """Return the pieces of all ranks along the first dimension; right to every order, each rank using them its way."""
    return _GatherPieces.apply(piece, group)  # type: ignore[return-value]


class _SumGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, group: Collective) -> Tensor:
        ctx.group = group
        return X.view_as(X)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return _SumOverRanks.apply(grad, ctx.group), None  # type: ignore[return-value]


def sum_gradient(X: Tensor, group: Collective) -> Tensor:
    """Return `X`, equal on all ranks and used by each in its own way: its gradient is the sum of theirs."""
    return _SumGradient.apply(X, group)  # type: ignore[return-value]


class _AverageGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, V: Tensor, group: Collective) -> Tensor:
        ctx.group = group
        return V.view_as(V)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        mean = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(mean, group=ctx.group)
        return mean.div_(dist.get_world_size(ctx.group)), None


def average_gradient(V: Tensor, group: Collective) -> Tensor:
    """Return `V`, whose gradient will be the mean over ranks, as data parallel training defines it."""
    return _AverageGradient.apply(V, group)  # type: ignore[return-value]
