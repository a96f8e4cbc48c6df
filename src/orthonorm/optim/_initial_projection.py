"""Weights that join an optimizer: all are checked, and those off the manifold are reported and moved onto it."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedParameter

from orthonorm.functional._orthogonality import orthogonality_errors
from orthonorm.functional._precision import working_dtype
from orthonorm.functional._rows import is_sharded
from orthonorm.functional.stiefel._layout import matrix_layout
from orthonorm.functional.stiefel._manifold import project

from ._blocks import Blocks, batches
from ._shards import check_shard

__all__ = ["check_weight", "put_on_manifold"]


class _Off(NamedTuple):
    """Blocks of one batch that are farther from the manifold than rounding explains."""

    blocks: Blocks
    worst: float
    zero: set[int]
    """The parameters of which a block is zero, by identity."""


def check_weight(param: Tensor, group_size: int | None, shards: bool, stacked: bool) -> None:
    """Raise unless an optimizer on the manifold can take a parameter of this kind, whatever its values."""
    if isinstance(param, UninitializedParameter):
        raise ValueError("a lazy parameter has no shape yet. Run one forward pass first.")
    if is_sharded(param):
        if not shards:
            raise TypeError(
                "this optimizer has one number for each group of rows, which a sharded parameter (DTensor) cannot "
                "store. Use StiefelSGD, do not shard the parameter, or use orthogonal_weight_norm."
            )
        check_shard(param, group_size, stacked)
    if param.is_complex():
        raise TypeError(
            f"a weight on the manifold must be real, not complex; got {param.dtype}. Pass its real and imaginary parts."
        )
    if param.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            "a weight on the manifold must be float32 or float64, whose rounding is smaller than a usual step; got "
            f"{param.dtype}. Keep the parameter in float32 and compute under torch.autocast."
        )
    matrix_layout(param.shape, group_size, stacked)


def put_on_manifold(
    groups: list[dict[str, Any]], name: str, stacklevel: int, eps: Callable[[dict[str, Any]], float]
) -> None:
    """Replace the weights of groups that are off the manifold by the nearest ones on it, with a warning.

    None is written before all are known, and reported: where this raises, or the warning does, they are as they were.

    Args:
        groups: parameter groups with `manifold=True`.
        name: the optimizer's.
        stacklevel: that of the user's call, seen from here.
        eps: how far from the manifold the weights of a group may stay, `|W W^T - I|_F`.

    Raises:
        ValueError: a weight has entries that are not finite.
    """
    with torch.no_grad():
        found = [
            _off(blocks, eps(group))
            for group in groups
            for blocks in batches(group["params"], group["group_size"], group["stacked"])
        ]
        off = [part for part in found if part is not None]
        if not off:
            return
        nearest = [project(part.blocks.stack(part.blocks.params)) for part in off]
        warnings.warn(_text(off, sum(len(group["params"]) for group in groups), name), stacklevel=stacklevel)
        for part, W in zip(off, nearest, strict=True):
            part.blocks.scatter(part.blocks.params, W)


def _off(blocks: Blocks, eps: float) -> _Off | None:
    W = blocks.stack(blocks.params)
    if not bool(torch.isfinite(W).all()):
        raise ValueError(
            f"a weight of shape {tuple(blocks.params[0].shape)} has entries that are not finite. Initialize it first."
        )
    # Squares past the range of the type leave inf - inf: as far off as can be, and NaN compares as nothing.
    errors = orthogonality_errors(W).squeeze(-1).nan_to_num(nan=torch.inf, posinf=torch.inf)
    # 1.2e-5 in float32: a run that goes on after a checkpoint is not disturbed.
    off = ((errors > 100 * torch.finfo(W.dtype).eps) & ~_within(W, eps)).tolist()
    if not any(off):
        return None
    nothing = blocks.where((W == 0).all(-1).all(-1).tolist())
    return _Off(blocks.where(off), errors.max().item(), {id(param) for param in nothing.params})


def _within(W: Tensor, eps: float) -> Tensor:
    if eps == 0:
        return torch.zeros(len(W), dtype=torch.bool, device=W.device)
    X = W.to(working_dtype(W))
    P = X @ X.mT - torch.eye(X.shape[-2], dtype=X.dtype, device=X.device)
    return torch.linalg.matrix_norm(P) <= eps


def _text(off: list[_Off], total: int, name: str) -> str:
    moved = {id(param) for part in off for param in part.blocks.params}
    zero = set().union(*(part.zero for part in off))
    of_zeros = (
        f". In {len(zero)} of them all rows, or those of a group, were zero, to which every orthonormal matrix is "
        "equally near: they are an arbitrary one now"
        if zero
        else ""
    )
    return (
        f"{name} moved {len(moved)} of {total} weights onto the manifold: the largest |W W^T - I| was "
        f"{max(part.worst for part in off):.2g}, and each is now the nearest matrix with orthonormal rows in its "
        f"groups (polar factor, computed in float64){of_zeros}. Initialize on the manifold, with "
        "torch.nn.init.orthogonal_ for instance, to keep the weights as they are. The unconstrained parameter V of "
        "a layer that `orthogonalize_` converted does not belong here: give it to an ordinary optimizer"
    )
