"""One forward's exchange: each rank transforms its groups of rows, and the orthonormal rows go to all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from orthonorm.parametrizations import OrthogonalWeightNorm
from orthonorm.parametrizations._orthogonal_weights import unconstrained

from ._buckets import Bucket
from ._collectives import Collective, all_gather, reduce_scatter

__all__ = ["DividedWeightNorm", "Exchange", "Member", "Precision", "install"]

# Note [gradients of a divided transformation]
# Rank r has its own loss L_r, and data parallel training follows the mean of them. Every rank reads all of W, so the
# gradient of the mean is mean_r dL_r/dW: a reduce-scatter brings each group's to the rank that maps the group, which
# runs the adjoint. What comes out is a part of the gradient of V, averaged already.

# Note [when exchanged rows may be used]
# The rows that a forward has exchanged are those of V as it was. They are kept for reads in that forward, for what is
# recomputed in its backward (activation checkpointing) and for a penalty on the weight beside it, as long as V is the
# same tensor at the same version, and until the backward has used them. Any other read computes W from V afresh.


class Precision(NamedTuple):
    """The dtypes that rows are exchanged in, and their gradients; None for the dtype of V."""

    rows: torch.dtype | None = None
    gradients: torch.dtype | None = None


AS_IS = Precision()


@dataclass
class Member:
    """One unconstrained parameter V and the parametrizations that transform it (several where layers share it)."""

    key: str
    module: nn.Module
    name: str
    owners: list[OrthogonalWeightNorm]

    @property
    def V(self) -> Tensor:
        """The unconstrained parameter as it is registered now."""
        return unconstrained(self.module, self.name)


@dataclass
class _Round:
    """What one forward has exchanged."""

    sources: list[tuple[Tensor, int]]
    graph: bool
    buffers: dict[int, tuple[Tensor, Any]] = field(default_factory=dict)
    rows: dict[int, Tensor] = field(default_factory=dict)

    def forget(self, bucket: Bucket) -> None:
        self.buffers.pop(bucket.first, None)
        for i in range(bucket.first, bucket.first + len(bucket.weights)):
            self.rows.pop(i, None)


class _Gather(torch.autograd.Function):
    """A rank's piece of rows to the buffer of all pieces; backward to the mean gradient of the piece."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, piece: Tensor, exchange: "Exchange", bucket: Bucket, current: _Round
    ) -> Tensor:
        ctx.exchange, ctx.bucket, ctx.current, ctx.piece = exchange, bucket, current, (piece.numel(), piece.dtype)
        padded = piece.new_zeros(bucket.length, dtype=exchange.precision.rows or piece.dtype)
        padded[: piece.numel()] = piece
        buffer, work = all_gather(padded, exchange.group, wait=False)
        current.buffers[bucket.first] = buffer, work
        return buffer

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]
        exchange = ctx.exchange
        ctx.current.forget(ctx.bucket)
        numel, dtype = ctx.piece
        mean = reduce_scatter(grad.to(exchange.precision.gradients or grad.dtype), exchange.group)
        return mean[:numel].to(dtype).div_(dist.get_world_size(exchange.group)), None, None, None


class Exchange:
    """The weights of a model whose transformation is divided among ranks.

    Args:
        members: the unconstrained parameters.
        buckets: which rank transforms which of their groups.
        group: the ranks.
        collect: `(bucket, the unconstrained parameters of its weights) -> this rank's rows of V`, flat.
        outside: `V -> V` as the transformation reads it outside of a forward.
        always: exchange in evaluation, too (no rank holds all of V), not only where gradients are wanted.
        precision: dtypes of what is exchanged.
    """

    def __init__(
        self,
        members: Sequence[Member],
        buckets: Sequence[Bucket],
        group: Collective,
        collect: Callable[[Bucket, Sequence[Member]], Tensor],
        outside: Callable[[Tensor], Tensor],
        *,
        always: bool = False,
        precision: Precision = AS_IS,
    ) -> None:
        self.members: list[Member] = list(members)
        self.buckets: list[Bucket] = list(buckets)
        self.group: Collective = group
        self.collect: Callable[[Bucket, Sequence[Member]], Tensor] = collect
        self.outside: Callable[[Tensor], Tensor] = outside
        self.always: bool = always
        self.precision: Precision = precision
        self.current: _Round | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> "Exchange":
        """Return an exchange of nothing: a copied model computes by itself, and folds by itself."""
        copied = Exchange([], [], self.group, self.collect, lambda V: V)
        memo[id(self)] = copied
        return copied

    def begin(self, module: nn.Module, _: Any) -> None:
        """Transform this rank's groups and start the exchange, bucket by bucket; runs before the model's forward."""
        _begin(self, module)  # type: ignore[call-arg]

    def end(self, *_: Any) -> None:
        """Drop what no backward will want; runs after the model's forward."""
        if self.current is not None and not self.current.graph:
            self.current = None

    def rows_of(self, i: int) -> Tensor | None:
        """Return the exchanged rows of weight `i`, or None where they are not those of V now, in this mode."""
        current = self.current
        if current is None or current.graph != torch.is_grad_enabled():
            return None
        V, version = current.sources[i]
        if V is not self.members[i].V or V._version != version:
            return None
        if i not in current.rows:
            bucket = next(b for b in self.buckets if b.first <= i < b.first + len(b.weights))
            if bucket.first not in current.buffers:
                return None
            buffer, work = current.buffers.pop(bucket.first)
            work.wait()
            current.rows.update(enumerate(bucket.rows_of(buffer), bucket.first))
        return current.rows[i]

    @staticmethod
    def alive(member: Member) -> bool:
        """Whether the weight is still made from V: not folded since, and V no stand-in of a transform."""
        parametrizations = getattr(member.module, "parametrizations", {})
        return member.name in parametrizations and isinstance(member.V, nn.Parameter)


@torch.compiler.disable
def _begin(exchange: Exchange, module: nn.Module) -> None:
    # A function, and the hook a bound method around it: a deep copy of the model copies bound methods with their
    # object, while it would share a function, and run the exchange of the model that it was copied from.
    exchange.current = None
    wanted = exchange.always or (module.training and torch.is_grad_enabled())
    members = exchange.members
    if not wanted or not members or not all(exchange.alive(member) for member in members):
        return
    current = _Round([(V := member.V, V._version) for member in members], torch.is_grad_enabled())
    rank = dist.get_rank(exchange.group)
    for bucket in exchange.buckets:
        flat = exchange.collect(bucket, members[bucket.first : bucket.first + len(bucket.weights)])
        piece = bucket.map(flat, rank) if bucket.pieces[rank] else flat
        buffer = _Gather.apply(piece, exchange, bucket, current)
        current.buffers[bucket.first] = buffer, current.buffers[bucket.first][1]  # the one with a graph
    exchange.current = current


class DividedWeightNorm(OrthogonalWeightNorm):
    """An `OrthogonalWeightNorm` that takes its rows from an exchange inside the model's forward; made by `divide_`."""

    mapped_together = False  # its rows come from the exchange
    exchange: Exchange
    index: int

    def rows(self, V: Tensor) -> Tensor:
        """Return the rows of `V`; of the whole of it where it is sharded."""
        return super().rows(self.exchange.outside(V) if hasattr(V, "full_tensor") else V)

    def orthonormal_rows(self, V: Tensor) -> Tensor:
        """Return the exchanged rows, or those of `V` where there are none."""
        rows = self.exchange.rows_of(self.index)
        return super().orthonormal_rows(self.exchange.outside(V)) if rows is None else rows

    def factor(self) -> Tensor | float | None:
        """Return the scale; whole where `fully_shard` has sharded it and this is outside of its forward."""
        scale = super().factor()
        return self.exchange.outside(scale) if hasattr(scale, "full_tensor") else scale  # type: ignore[arg-type]


def install(model: nn.Module, exchange: Exchange) -> None:
    """Make a model's orthogonal weights come from the exchange, which begins with each forward of the model."""
    for i, member in enumerate(exchange.members):
        for owner in member.owners:
            owner.__class__ = DividedWeightNorm
            owner.exchange, owner.index = exchange, i  # type: ignore[attr-defined]
    model.register_forward_pre_hook(exchange.begin)
    model.register_forward_hook(exchange.end, always_call=True)
