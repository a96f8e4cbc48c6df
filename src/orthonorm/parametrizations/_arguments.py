"""What the arguments of an orthogonal weight may be, and what each block of rows holds."""

from collections.abc import Sequence

from torch import Tensor, nn

from orthonorm._nearest_name import nearest_name
from orthonorm.functional._rows import is_sharded

__all__ = [
    "block_sizes",
    "check_blocks",
    "check_center",
    "check_initial",
    "check_scale",
    "check_stack",
    "check_table",
    "check_weight",
    "refuse_meta",
    "refuse_rewritten",
    "refuse_sharded",
    "refuse_unsaid_stack",
]


def check_weight(weight: Tensor, label: str) -> None:
    """Raise a TypeError or ValueError for a tensor that cannot be made orthogonal."""
    if isinstance(weight, nn.parameter.UninitializedParameter):
        raise ValueError(f"{label} has no shape yet (a lazy module). Run one batch through the module first.")
    if weight.is_complex():
        raise TypeError(
            f"{label} is complex ({weight.dtype}), but the transformation is defined for real weights. Keep real and "
            "imaginary parts as two real weights, or leave this module as it is."
        )
    if not weight.is_floating_point():
        raise TypeError(f"{label} must be a floating tensor; got {weight.dtype}. Convert it with .float().")
    if weight.ndim < 2:
        raise ValueError(
            f"{label} must have at least 2 dimensions, rows and their entries; got the shape {tuple(weight.shape)}. "
            "Biases and normalization weights stay as they are."
        )


def check_stack(weight: Tensor, stacked: bool, label: str) -> None:
    """Raise a TypeError or ValueError for a `stacked` that does not fit the weight."""
    if not isinstance(stacked, bool):
        raise TypeError(f"stacked must be True or False; got {stacked!r}.")
    if stacked and weight.ndim != 3:
        raise ValueError(
            f"{label} must have 3 dimensions (E, n, d) with stacked=True, E matrices; got the shape "
            f"{tuple(weight.shape)}. Leave stacked out for a matrix or a convolution's kernel."
        )


def _are_sizes(blocks: object) -> bool:
    return (
        isinstance(blocks, Sequence) and all(isinstance(size, int) for size in blocks) and not isinstance(blocks, str)
    )


def block_sizes(n: int, blocks: int | Sequence[int] | None, groups: int) -> tuple[int, ...]:
    """Return the rows of each block that groups may not straddle, of `n` rows in all."""
    if blocks is None:
        return (n,)
    if groups > 1:
        raise ValueError(
            f"blocks cannot be combined with a convolution of {groups} groups, which are blocks already; got "
            f"blocks={blocks!r}. Leave blocks out."
        )
    if isinstance(blocks, int):  # the number of equal blocks
        if n % blocks:
            raise ValueError(
                f"blocks, as a number, must divide the {n} rows; got {blocks}. Give the sizes of unequal blocks."
            )
        return (n // blocks,) * blocks
    if sum(blocks) != n:
        raise ValueError(f"the sizes of blocks must be positive and sum to the {n} rows; got {tuple(blocks)}.")
    return tuple(blocks)


def check_blocks(blocks: int | Sequence[int] | None) -> None:
    """Raise a TypeError or ValueError for `blocks` that no weight could have."""
    if blocks is None:
        return
    if isinstance(blocks, bool) or not (isinstance(blocks, int) or _are_sizes(blocks)):
        raise TypeError(f"blocks must be a number of equal blocks, or the sizes of the blocks; got {blocks!r}.")
    if isinstance(blocks, int) and blocks < 1:
        raise ValueError(f"blocks, as a number, must be at least 1, or None for no blocks; got {blocks}.")
    if not isinstance(blocks, int) and min(blocks, default=0) < 1:
        raise ValueError(
            f"the sizes of blocks must be positive and sum to the rows of the weight; got {tuple(blocks)}."
        )


def check_center(center: bool) -> None:
    """Raise a TypeError for a `center` that is not True or False."""
    if not isinstance(center, bool):
        raise TypeError(f"center must be True or False; got {center!r}.")


def check_scale(scale: object) -> None:
    """Raise a TypeError or ValueError for a `scale` that no weight could have."""
    rule = "scale must be None, 'learned' (a factor per row, initially 1), 'row_norms' (learned, initially row norms)"
    rule += f" or a positive number; got {scale!r}."
    if isinstance(scale, bool):
        raise TypeError(f"{rule} Write {'scale=' + repr('learned') if scale else 'scale=None'}.")
    if isinstance(scale, str):
        if scale not in ("learned", "row_norms"):
            near = nearest_name(scale, ("learned", "row_norms")) or "learned"
            raise ValueError(f"{rule} Write scale={near!r}.")
    elif scale is not None:
        if not isinstance(scale, int | float):
            raise TypeError(f"{rule} Write a tensor as float(scale), and no scale as None.")
        if not 0 < scale < float("inf"):
            raise ValueError(f"{rule} Write scale=None for no scale.")


def check_initial(initial: object) -> None:
    """Raise a ValueError for an `initial` that is not known."""
    if initial not in ("orthonormal", "weight"):
        raise ValueError(
            "initial must be 'orthonormal' (V starts as a multiple of the orthonormal matrix) or 'weight' (V starts as "
            f"the weight that was there); got {initial!r}. Leave it out, or pass one of the two."
        )


def refuse_sharded(V: Tensor, label: str) -> None:
    """Raise a TypeError for a V that is sharded among ranks (DTensor): rows of a group must be whole."""
    if is_sharded(V):
        raise TypeError(
            f"{label} is sharded among ranks (DTensor), and rows of a group must be whole to be orthonormal. Convert "
            "the model (orthogonalize_) before sharding it, read its weights inside the forward of a module that "
            "fully_shard wraps, shard it with orthonorm.distributed, or gather its state and load that into an "
            "unsharded model."
        )


def refuse_meta(tensor: Tensor, label: str, before: str) -> None:
    """Raise a ValueError for a tensor on the meta device where a function needs values."""
    if tensor.is_meta:
        raise ValueError(
            f"{label} is on the meta device, which holds no values. Call to_empty(device=...) on the model and load "
            f"its weights before {before}."
        )


def check_table(module: nn.Module, label: str) -> None:
    """Raise a ValueError for an embedding that does with its table what an orthogonal one does not bear."""
    if not isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return
    if module.sparse:
        raise ValueError(
            f"{label}: {type(module).__name__} has sparse=True, but an orthogonal table depends on every row of V, so "
            "its gradient is dense. Set sparse=False, or leave it as it is: orthogonalize_ has filter_fn."
        )
    if module.max_norm is not None:
        raise ValueError(
            f"{label}: {type(module).__name__} has max_norm={module.max_norm}, which writes into the table at each "
            "forward; an orthogonal table has rows of norm 1 (or the scale). Set max_norm=None, or leave it as it "
            "is: orthogonalize_ has filter_fn."
        )


# What torch's older functions, which rewrite a weight in a hook before each forward, keep beside it, and how each ends.
_REWRITTEN = {
    "_g": ("weight_norm", "torch.nn.utils.remove_weight_norm(module, {name!r})"),
    "_u": ("spectral_norm", "torch.nn.utils.remove_spectral_norm(module, {name!r})"),
    "_mask": ("pruning", "torch.nn.utils.prune.remove(module, {name!r})"),
}


def refuse_rewritten(module: nn.Module, name: str, label: str) -> None:
    """Raise a ValueError for a tensor that a hook of torch's makes from others: it is no parameter any more."""
    there = {**module._parameters, **module._buffers}
    for ending, (function, cure) in _REWRITTEN.items():
        if name + ending in there:
            raise ValueError(
                f"{label} is rewritten before each forward by torch's {function}, so it is no parameter of this "
                f"{type(module).__name__}. Remove that first ({cure.format(name=name)}), or leave the layer out."
            )


def refuse_unsaid_stack(module: nn.Module, name: str, weight: Tensor, stacked: bool, label: str) -> None:
    """Raise a ValueError for a tensor of three dimensions that is no kernel, unless it is said to be a stack."""
    lazy = isinstance(weight, nn.parameter.UninitializedParameter)
    flattened = name == "weight" and isinstance(module, nn.modules.conv._ConvNd | nn.Bilinear)
    if not (stacked or lazy or flattened) and weight.ndim == 3:
        E, n, d = weight.shape
        raise ValueError(
            f"{label} has the shape {(E, n, d)} and is no convolution's kernel, so its rows may be those of {E} "
            f"matrices or of one. Pass stacked=True for {E} matrices of {n} rows, each orthogonal by itself; for one "
            f"matrix ({E}, {n * d}) keep the parameter in two dimensions."
        )
