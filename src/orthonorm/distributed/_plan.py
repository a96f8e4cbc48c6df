"""What dividing or sharding a model's transformation costs each rank: operations, bytes, balance; no process needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from orthonorm.functional import orthonormalize
from orthonorm.functional._option_types import MethodName, Precision
from orthonorm.parametrizations import OrthogonalWeightNorm
from orthonorm.parametrizations._orthogonal_weights import orthogonal_weights, unconstrained

from ._buckets import Bucket, balanced, make_buckets
from ._divide import BUCKET_MIB, check_bucket
from ._row_groups import GroupedWeight
from ._row_transfers import Moves, where_most_rows_are
from ._shared_weights import NONE_TO_SHARD, describe, has_plain_rows

__all__ = ["Plan", "plan", "plan_weights"]

_SETUPS = ("divide", "shard")


@dataclass(frozen=True)
class Plan:
    """What each of some ranks does in a step; prints as a summary.

    Operations are those that torch counts (`FlopCounterMode`): the matrix products of the transformation, forward and
    backward. `ConversionPlan.operations` is another number, an estimate that includes the eigendecomposition.

    Attributes:
        setup: `"divide"` (`divide_`) or `"shard"` (`shard_`).
        weights: number of orthogonal weights.
        groups: groups of rows: the pieces of work that can be shared out.
        single: operations of the transformation in one process.
        operations: those of each rank.
        sent: bytes that each rank sends.
        collectives: collectives a step.
        cut: groups of rows that a border between two ranks' shards cuts.
        gradient: bytes that a rank sends in data parallel training for the gradients of these weights anyhow.
    """

    setup: str
    weights: int
    groups: int
    single: int
    operations: tuple[int, ...]
    sent: tuple[int, ...]
    collectives: int
    cut: int
    gradient: int

    @property
    def share(self) -> float:
        """The busiest rank's operations over an equal share of one process's: 1 is best."""
        return max(self.operations) * len(self.operations) / self.single if self.single else 1.0

    @property
    def idle(self) -> int:
        """The number of ranks that transform nothing."""
        return self.operations.count(0)

    def __str__(self) -> str:
        """Return the summary, with a row for each rank where there are few."""
        ranks = len(self.operations)
        lines = [
            f"{self.setup}: {_counted(self.groups, 'group')} of rows in {_counted(self.weights, 'weight')}, on "
            f"{_counted(ranks, 'rank')}",
            f"operations a step: {_si(self.single)} in one process, {_si(max(self.operations))} on the busiest rank "
            f"({self.share:.3f} of an equal share; median {_si(median(self.operations))}), "
            f"{_counted(self.idle, 'rank')} idle",
            f"bytes a rank sends a step: {_si(max(self.sent))}B in {_counted(self.collectives, 'collective')}; "
            f"without it the gradients of these weights alone take {_si(self.gradient)}B",
        ]
        if self.setup == "shard":
            lines.append(f"groups cut by a border between ranks: {self.cut}" + (_CUT_CURE if self.cut else ""))
        if ranks <= 16:
            lines += [
                f"rank {rank:2d}: {_si(done):>8} operations, {_si(sent):>8}B sent"
                for rank, (done, sent) in enumerate(zip(self.operations, self.sent, strict=True))
            ]
        return "\n".join(lines)


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


_CUT_CURE = " (their rows beyond it travel; a group size that divides the rows a rank holds avoids it)"


def plan(model: nn.Module, ranks: int, *, setup: str = "divide", bucket_mib: float = BUCKET_MIB) -> Plan:
    """Return what `divide_` or `shard_` will have each rank do in a step, without running either.

    Operations are counted by tracing the transformation of each shape on tensors without data. Bytes follow from the
    buffers of the collectives, of which a rank sends `(R - 1) / R` in a ring. The model may be on the meta device.

    Args:
        model: a model with orthogonal weights.
        ranks: how many ranks, simulated.
        setup: `"divide"` for `divide_`, `"shard"` for `shard_`.
        bucket_mib: as in either.

    Raises:
        TypeError: if `ranks` is not a whole number.
        ValueError: if the model has no orthogonal weight, or an argument is out of range.

    Examples:
        >>> import torch, orthonorm as on
        >>> from orthonorm.distributed import plan
        >>> plan(torch.nn.Sequential(on.OrthogonalLinear(64, 32, group_size=8)), ranks=4).share
        1.0
    """
    weights = [(key, owner, unconstrained(module, name)) for key, module, name, owner in orthogonal_weights(model)]
    if not weights:
        raise ValueError(
            f"this {type(model).__name__} has no orthogonal weight to plan for. Call orthogonalize_ first."
        )
    return plan_weights(weights, ranks, setup=setup, bucket_mib=bucket_mib)


def plan_weights(
    owners: Sequence[tuple[str, OrthogonalWeightNorm, Tensor]],
    ranks: int,
    *,
    setup: str = "divide",
    bucket_mib: float = BUCKET_MIB,
) -> Plan:
    """Return the plan of `plan` for weights given by their names, parametrizations and unconstrained parameters."""
    check_bucket(bucket_mib)
    if isinstance(ranks, bool) or not isinstance(ranks, int):
        raise TypeError(f"ranks must be a whole number; got {ranks!r}.")
    if ranks < 1:
        raise ValueError(f"ranks must be at least 1; got {ranks}.")
    if setup not in _SETUPS:
        raise ValueError(f"setup must be one of {', '.join(map(repr, _SETUPS))}; got {setup!r}.")
    weights = _weights_in_exchange(owners, setup)
    mappers = balanced(ranks) if setup == "divide" else where_most_rows_are(weights, ranks)
    buckets = make_buckets(weights, bucket_mib * 2**20, mappers, ranks)
    operations = [0] * ranks
    for bucket in buckets:
        for rank, piece in enumerate(bucket.pieces):
            operations[rank] += sum(_operations(*g.kind, weights[g.weight].dtype) for g in piece)
    moves = [Moves(bucket, ranks) for bucket in buckets] if setup == "shard" else []
    ring = (2 if moves else 3) * sum(_bytes(bucket) for bucket in buckets) * (ranks - 1)
    sent = [ring] * ranks
    for bucket, moved in zip(buckets, moves, strict=moves != []):
        itemsize = bucket.weights[0].dtype.itemsize
        for s in moved.moved:  # there in the forward, and its gradient back
            sent[s.holder] += s.numel * itemsize
            sent[s.mapper] += s.numel * itemsize
    return Plan(
        setup=setup,
        weights=len(weights),
        groups=sum(len(piece) for bucket in buckets for piece in bucket.pieces),
        single=sum(operations),
        operations=tuple(operations),
        sent=tuple(sent),
        collectives=len(buckets) * (2 if moves else 3) + 2 * sum(moved.any for moved in moves),
        cut=sum(len({(s.mapper, s.group) for s in moved.moved}) for moved in moves),
        gradient=2 * sum(w.bytes for w in weights) * (ranks - 1) // ranks,
    )


def _weights_in_exchange(owners: Sequence[tuple[str, OrthogonalWeightNorm, Tensor]], setup: str) -> list[GroupedWeight]:
    """Return the weights that `divide_` or `shard_` takes: a shared V once, and for `shard_` those whose rows are V's.

    Raises:
        ValueError: if there is none.
    """
    shared: dict[int, list[tuple[str, OrthogonalWeightNorm, Tensor]]] = {}
    for weight in owners:
        shared.setdefault(id(weight[2]), []).append(weight)
    weights = [
        describe(*same[0])
        for same in shared.values()
        if setup == "divide" or all(has_plain_rows(owner) for _, owner, _ in same)
    ]
    if not weights:
        raise ValueError(NONE_TO_SHARD)
    return weights


def _bytes(bucket: Bucket) -> int:
    """Return the bytes of one rank's piece."""
    return bucket.length * bucket.weights[0].dtype.itemsize


@lru_cache(maxsize=4096)
def _operations(d: int, size: int, center: bool, method: MethodName, precision: Precision, dtype: torch.dtype) -> int:
    """Return the operations that torch counts for one group, forward and backward."""
    with FakeTensorMode(), FlopCounterMode(display=False) as counter:
        V = torch.empty(1, size, d, dtype=dtype, requires_grad=True)
        W = orthonormalize(V, center=center, method=method, precision=precision)
        W.backward(torch.empty_like(W))
    return counter.get_total_flops()


def _si(number: int | float) -> str:
    """Return a number in three digits with a prefix: "1.23 G"."""
    for prefix in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.3g} {prefix}"
        number /= 1000
    return f"{number:.3g} T"
