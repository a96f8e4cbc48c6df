"""Sharded training: V in shards of rows, which their ranks transform, and only orthonormal rows are gathered."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from orthonorm.parametrizations._orthogonal_weights import orthogonal_weights, unconstrained

from ._buckets import Bucket, make_buckets
from ._collectives import Collective, all_to_all, average_gradient
from ._divide import BUCKET_MIB, check_bucket
from ._exchange import DividedWeightNorm, Exchange, Member, Precision, install
from ._row_transfers import Moves, where_most_rows_are
from ._shared_weights import NONE_TO_SHARD, check_group, check_same_everywhere, describe, find_members, has_plain_rows

__all__ = ["shard_", "sharded_params"]


def shard_(
    model: nn.Module, mesh: DeviceMesh, *, mp_policy: MixedPrecisionPolicy | None = None, bucket_mib: float = BUCKET_MIB
) -> nn.Module:
    """Shard every V on rows, transform each group of rows on the rank that holds it, and gather only W.

    V becomes a DTensor, `Shard(0)` on the mesh, out of `fully_shard`'s hands: its gradient and the optimizer's state
    are sharded as V is, and raw V is never gathered in a forward. The orthonormal rows of the whole model are gathered
    at the start of its forward and live until its backward, as weights do with `reshard_after_forward=False`.

    A group is transformed whole by the rank that holds most of its rows. Where a border between ranks cuts a group, its
    other rows (only those) are sent there and their gradients back. `plan` says what that costs. A group size that
    divides the rows a rank avoids it, and so does `OrthogonalConfig(blocks=...)`.

    Call it on every rank after `orthogonalize_`, before `fully_shard` and before building the optimizer; values are
    those of the mesh's first rank. The weights and their gradients are those of one process. Weights whose rows are no
    rows of the tensor (transposed convolutions, stacks, embeddings with a padding row) are left to `fully_shard`, which
    gathers their V.

    Args:
        model: a model with orthogonal weights, with values, on the mesh's device.
        mesh: one dimension, the one that `fully_shard` gets.
        mp_policy: the policy that `fully_shard` gets. V stays in its dtype, W is computed from it and then gathered as
            `param_dtype`, and gradients of W are averaged in `reduce_dtype`.
        bucket_mib: a collective is begun once its weights take so many MiB.

    Returns:
        The model. Give `sharded_params(model)` to `fully_shard` as `ignored_params`.

    Raises:
        TypeError: if `model` is not a module, or `mesh` no DeviceMesh.
        ValueError: if the mesh has two dimensions or more, or no weight can be sharded; and as `divide_`.
        RuntimeError: in a backward that is to be differentiated again; or if this torch's `fully_shard` has no
            `ignored_params`.

    Examples:
        >>> import tempfile, torch, torch.distributed as dist, orthonorm as on
        >>> from torch.distributed.device_mesh import init_device_mesh
        >>> from orthonorm.distributed import shard_
        >>> with tempfile.TemporaryDirectory() as folder:  # one process: torchrun gives each of several its rank
        ...     dist.init_process_group("gloo", init_method=f"file://{folder}/ranks", rank=0, world_size=1)
        ...     model = shard_(torch.nn.Sequential(on.OrthogonalLinear(8, 4)), init_device_mesh("cpu", (1,)))
        ...     model(torch.ones(1, 8)).sum().backward()
        ...     dist.destroy_process_group()
        >>> model[0].parametrizations.weight.original.grad.placements
        (Shard(dim=0),)

    Source: the paper's groups, which are independent of one another; sharding as torch's `fully_shard` does it.
    """
    _check_torch()
    check_bucket(bucket_mib)
    if not isinstance(mesh, DeviceMesh):
        raise TypeError(f"mesh must be a DeviceMesh; got {type(mesh).__name__}. Call init_device_mesh(device, (R,)).")
    if mesh.ndim != 1:
        raise ValueError(
            f"shard_ shards rows over a mesh of one dimension; got one of {mesh.ndim}. Give the dimension that shards, "
            "as in mesh['shard']; replicas over another one are not supported."
        )
    group = check_group("shard_", mesh.get_group())
    members = [member for member in find_members(model, "shard_") if all(map(has_plain_rows, member.owners))]
    if not members:
        raise ValueError(NONE_TO_SHARD)
    weights = [describe(member.key, member.owners[0], member.V) for member in members]
    check_same_everywhere(weights, group, members[0].V.device)
    ranks = dist.get_world_size(group)
    buckets = make_buckets(weights, bucket_mib * 2**20, where_most_rows_are(weights, ranks), ranks)
    moves = {bucket.first: Moves(bucket, ranks) for bucket in buckets}

    def collect(bucket: Bucket, members: Sequence[Member]) -> Tensor:
        local = [member.V.to_local(grad_placements=[Shard(0)]).flatten(1) for member in members]  # type: ignore[attr-defined]
        return _HeldRows.apply(moves[bucket.first], group, *local)  # type: ignore[return-value]

    def outside(V: Tensor) -> Tensor:
        return average_gradient(V.full_tensor(grad_placements=[Replicate()]), group) if isinstance(V, DTensor) else V

    _distribute(model, members, mesh)
    policy = mp_policy or MixedPrecisionPolicy()
    precision = Precision(policy.param_dtype, policy.reduce_dtype)
    install(model, Exchange(members, buckets, group, collect, outside, always=True, precision=precision))
    return model


def _check_torch() -> None:
    """Refuse a torch (2.6) in which V cannot be kept out of `fully_shard`'s hands, before anything is changed."""
    if "ignored_params" not in inspect.signature(fully_shard).parameters:
        raise RuntimeError(
            "shard_ needs a fully_shard that takes ignored_params; that of torch "
            f"{torch.__version__} does not. Upgrade torch, or leave the model to fully_shard alone, which gathers V."
        )


def sharded_params(model: nn.Module) -> set[nn.Parameter]:
    """Return every V that `shard_` has sharded, which `fully_shard(..., ignored_params=...)` is to leave.

    Args:
        model: a module that `shard_` was called on.

    Raises:
        ValueError: if it has none.
    """
    found = {
        unconstrained(module, name)
        for _, module, name, owner in orthogonal_weights(model)
        if isinstance(owner, DividedWeightNorm) and owner.exchange.always
    }
    if not found:
        raise ValueError(f"this {type(model).__name__} has no sharded V. Call shard_ on it first.")
    return found


def _distribute(model: nn.Module, members: Sequence[Member], mesh: DeviceMesh) -> None:
    """Replace each V by its DTensor wherever it is registered."""
    sharded = {
        id(member.V): nn.Parameter(
            distribute_tensor(member.V.detach(), mesh, [Shard(0)]), requires_grad=member.V.requires_grad
        )
        for member in members
    }
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if id(parameter) in sharded:
                module._parameters[name] = sharded[id(parameter)]


class _HeldRows(torch.autograd.Function):
    """The rows that a rank holds to those of the groups it transforms; backward the way back."""

    @staticmethod
    def forward(ctx: Any, moves: Moves, group: Collective, *local: Tensor) -> Tensor:  # type: ignore[override]
        rank = dist.get_rank(group)
        ctx.moves, ctx.group, ctx.rank, ctx.shapes = moves, group, rank, [rows.shape for rows in local]
        received = None
        if moves.any:
            sent = moves.sent(local, rank)
            received = all_to_all(sent, moves.counts_to(rank), moves.counts_from(rank), group)
        return moves.piece(local, received, rank)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        moves, rank = ctx.moves, ctx.rank
        local = [grad.new_zeros(shape) for shape in ctx.shapes]
        back = moves.return_piece(grad, local, rank)
        if moves.any:
            received = all_to_all(back, moves.counts_from(rank), moves.counts_to(rank), ctx.group)
            moves.take_back(received, local, rank)
        return None, None, *local
