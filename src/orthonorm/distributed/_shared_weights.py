"""The orthogonal weights of a model as the exchange sees them, and the checks that come before."""

import zlib
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from orthonorm.parametrizations import OrthogonalWeightNorm
from orthonorm.parametrizations._arguments import refuse_meta
from orthonorm.parametrizations._orthogonal_weights import orthogonal_weights, unconstrained

from ._collectives import Collective
from ._exchange import DividedWeightNorm, Member
from ._row_groups import GroupedWeight

__all__ = [
    "NONE_TO_SHARD",
    "check_group",
    "check_same_everywhere",
    "describe",
    "find_members",
    "has_plain_rows",
    "refuse_columns",
]

NONE_TO_SHARD = (
    "no orthogonal weight of this model can be sharded on rows: transposed convolutions, stacks and embeddings with a "
    "padding row keep theirs elsewhere. Leave the model to fully_shard alone."
)


def check_group(caller: str, process_group: Collective | None) -> Collective:
    """Return the process group that is meant.

    Raises:
        ValueError: if there is none, or this process is not in it.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(
            f"{caller} shares work among processes, and no process group is initialized here. Call "
            "torch.distributed.init_process_group first; on one process leave the model as it is."
        )
    group = dist.group.WORLD if process_group is None else process_group
    if group is None or dist.get_rank(group) < 0:
        raise ValueError(f"{caller} must be called on the ranks of its process group; rank {dist.get_rank()} is not.")
    return group


def find_members(model: nn.Module, caller: str) -> list[Member]:
    """Return the unconstrained parameters of a model, one member for weights that layers share.

    Raises:
        TypeError: if `model` is not a module.
        ValueError: if it has none, one is on the meta device or on another device than the rest, or is divided already.
    """
    members: dict[int, Member] = {}
    for key, module, name, owner in orthogonal_weights(model):
        V = unconstrained(module, name)
        if isinstance(owner, DividedWeightNorm) and owner.exchange.members:
            raise ValueError(f"{key} is divided among ranks already. Call {caller} once, on the model or on its parts.")
        refuse_meta(V, key, caller)
        member = members.setdefault(id(V), Member(key, module, name, []))
        if owner not in member.owners:
            member.owners.append(owner)
    if not members:
        raise ValueError(f"this {type(model).__name__} has no orthogonal weight. Call orthogonalize_ before {caller}.")
    devices = sorted({str(member.V.device) for member in members.values()})
    if len(devices) > 1:
        raise ValueError(
            f"{caller} exchanges the weights of one device a rank; these are on {', '.join(devices)}. Divide the "
            "parts of the model on each device by themselves."
        )
    return list(members.values())


def refuse_columns(key: str, owner: OrthogonalWeightNorm) -> None:
    """Raise a ValueError for a weight with orthonormal columns: ranks share out groups of rows."""
    if owner.columns:
        raise ValueError(
            f"{key} has orthonormal columns (tall='columns'), but ranks share out groups of rows. Convert it with "
            "tall='groups', or leave it to each rank by itself."
        )


def has_plain_rows(owner: OrthogonalWeightNorm) -> bool:
    """Return whether the rows to be orthonormal are those of the tensor, along its first dimension."""
    return not owner.transposed and not owner.stacked and owner.constant_row is None


def describe(key: str, owner: OrthogonalWeightNorm, V: Tensor) -> GroupedWeight:
    """Return what decides how a weight's rows are transformed.

    Raises:
        ValueError: if columns of it are orthonormal.
    """
    refuse_columns(key, owner)
    rows = torch.empty(owner.shape, device="meta") if V.is_meta else V.detach()
    parts, _, d = owner.rows(rows).shape
    return GroupedWeight(key, parts, owner.sizes, d, owner.center, owner.method, owner.precision, V.dtype)


def check_same_everywhere(weights: Iterable[GroupedWeight], group: Collective, device: torch.device) -> None:
    """Raise a ValueError where the ranks' models differ: their collectives would not fit one another."""
    mark = zlib.crc32(repr(list(weights)).encode())
    pair = torch.tensor([mark, -mark], dtype=torch.int64, device=device)
    dist.all_reduce(pair, op=dist.ReduceOp.MIN, group=group)
    if int(pair[0]) != mark or int(pair[1]) != -mark:
        raise ValueError(
            "the ranks have different orthogonal weights or groups, so they cannot share the work. Build the model and "
            "convert it in the same way on every rank."
        )
