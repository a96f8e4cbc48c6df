"""Data parallel training: the transformation of replicated weights divided among the ranks."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ._buckets import Bucket, balanced, make_buckets
from ._collectives import Collective, all_gather, average_gradient
from ._exchange import Exchange, Member, install
from ._shared_weights import check_group, check_same_everywhere, describe, find_members

__all__ = ["BUCKET_MIB", "check_bucket", "divide_"]

BUCKET_MIB = 25.0


def divide_(model: nn.Module, process_group: Collective | None = None, *, bucket_mib: float = BUCKET_MIB) -> nn.Module:
    """Divide the transformation of a model's orthogonal weights, forward and backward, among data parallel ranks.

    Every rank keeps the whole of V. In a forward each transforms its share of the groups of rows. One all-gather a
    bucket brings the orthonormal rows to all ranks while the next bucket is transformed. In the backward one
    reduce-scatter brings the mean gradient of each group to its rank, which runs the adjoint, and one all-gather brings
    the gradient of V to all. So the gradient of V is the mean over ranks already, and DistributedDataParallel is asked
    to leave V alone (where it does not, it averages equal numbers). A step exchanges W once, besides the gradient,
    whose traffic is that of a step without `divide_`.

    The shares are groups of rows, not layers, balanced by operations, and each rank finds them by itself. The weights
    are those of one process. Call it on every rank, after `orthogonalize_` and before wrapping the model; V is taken
    from the group's first rank. Evaluation (`model.eval()` or `no_grad`) computes every weight by itself, without
    communication, so that one rank may evaluate or fold alone.

    Args:
        model: a model with orthogonal weights on one device.
        process_group: the ranks that share the work; None for all. With fewer (those of one machine, where all ranks
            are more than there are groups), DistributedDataParallel averages the gradient of V over all as usual.
        bucket_mib: a collective is begun once its weights take so many MiB.

    Returns:
        The model.

    Raises:
        TypeError: if `model` is not a module.
        ValueError: if no process group is initialised, the model has no orthogonal weight, is divided already or on the
            meta device, or differs between ranks.
        RuntimeError: in a backward that is to be differentiated again.

    Examples:
        >>> import tempfile, torch, torch.distributed as dist, orthonorm as on
        >>> from orthonorm.distributed import divide_
        >>> with tempfile.TemporaryDirectory() as folder:  # one process: torchrun gives each of several its rank
        ...     dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
        ...     model = divide_(torch.nn.Sequential(on.OrthogonalLinear(8, 4)))
        ...     model(torch.ones(1, 8)).sum().backward()
        ...     dist.destroy_process_group()
        >>> model[0].parametrizations.weight.original.grad.shape
        torch.Size([4, 8])

    Source: the paper's groups, which are independent of one another; the exchange is that of data parallel training
    with sharded optimizers (Rajbhandari et al., ZeRO, 2020), applied to W.
    """
    check_bucket(bucket_mib)
    group = check_group("divide_", process_group)
    members = find_members(model, "divide_")
    weights = [describe(member.key, member.owners[0], member.V) for member in members]
    check_same_everywhere(weights, group, members[0].V.device)
    with torch.no_grad():
        for member in members:
            dist.broadcast(member.V.detach(), dist.get_global_rank(group, 0), group=group)
    ranks = dist.get_world_size(group)
    buckets = make_buckets(weights, bucket_mib * 2**20, balanced(ranks), ranks)

    def collect(bucket: Bucket, members: Sequence[Member]) -> Tensor:
        rows = [member.owners[0].rows(member.V) for member in members]
        return _OwnRows.apply(bucket, group, *rows)  # type: ignore[return-value]

    def outside(V: Tensor) -> Tensor:
        wanted = isinstance(V, nn.Parameter) and V.requires_grad and torch.is_grad_enabled()
        return average_gradient(V, group) if wanted else V

    install(model, Exchange(members, buckets, group, collect, outside))
    if ranks == dist.get_world_size():
        _leave_to_us(model, members)
    return model


def check_bucket(bucket_mib: float) -> None:
    """Raise a TypeError or ValueError for a size of buckets that means nothing."""
    if isinstance(bucket_mib, bool) or not isinstance(bucket_mib, int | float):
        raise TypeError(f"bucket_mib must be a number of MiB; got {bucket_mib!r}.")
    if not bucket_mib > 0:
        raise ValueError(f"bucket_mib must be above 0, or inf for one collective; got {bucket_mib}.")


class _Ignored(list[str]):
    """The names that DistributedDataParallel is to leave alone in a model, but not in a copy of it.

    A copied model computes by itself, and nobody else would average its gradients.
    """

    def __deepcopy__(self, memo: dict[int, Any]) -> list[str]:
        return []


def _leave_to_us(model: nn.Module, members: Sequence[Member]) -> None:
    """Tell DistributedDataParallel to leave V alone, unless nothing would be left for it to do.

    It reads the names from this attribute of the model; its function that sets it also marks the parameters, which
    would stay marked when the model is folded.
    """
    ours = {id(member.V) for member in members}
    names = [name for name, p in model.named_parameters(remove_duplicate=False) if id(p) in ours]
    if any(p.requires_grad for p in model.parameters() if id(p) not in ours):
        already = getattr(model, "_ddp_params_and_buffers_to_ignore", [])
        model._ddp_params_and_buffers_to_ignore = _Ignored([*already, *names])  # type: ignore[assignment]


class _OwnRows(torch.autograd.Function):
    """All rows of replicated weights to this rank's piece; backward from each rank's piece to the gradient of all."""

    @staticmethod
    def forward(ctx: Any, bucket: Bucket, group: Collective, *rows: Tensor) -> Tensor:  # type: ignore[override]
        ctx.bucket, ctx.group = bucket, group
        return bucket.piece_of(rows, dist.get_rank(group))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        padded = grad.new_zeros(ctx.bucket.length)
        padded[: grad.numel()] = grad
        buffer, _ = all_gather(padded, ctx.group)
        return None, None, *ctx.bucket.rows_of(buffer)
