"""What the arguments of an orthogonal weight may be, and what each block of rows holds."""

from collections.abc import Sequence

from torch import Tensor, nn

from orthonorm.functional._rows import is_sharded

__all__ = [
    "block_sizes",
    "check_blocks",
    "check_center",
    "check_initial",
    "check_scale",
    "check_stack",
    "check_weight",
    "refuse_sharded",
]


def check_weight(weight: Tensor, label: str) -> None:
    """Raise a TypeError or ValueError for a tensor that cannot be made orthogonal."""
    if isinstance(weight, nn.parameter.UninitializedParameter):
        raise ValueError(f"{label} has no shape yet (a lazy module). Run one batch through the module first.")
    if weight.is_complex():
        raise TypeError(
            f"{label} is complex ({weight.dtype}), but the map is defined for real weights. Keep real and imaginary "
            "parts as two real weights, or leave this module as it is."
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
    check_blocks(blocks)
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
    rule = (
        "scale must be None, 'learned' (a factor a row that starts at 1), 'row_norms' (learned, and starts at the row "
    )
    rule += f"norms of the weight that was there) or a positive number; got {scale!r}."
    if isinstance(scale, bool):
        raise TypeError(f"{rule} Write {'scale=' + repr('learned') if scale else 'scale=None'}.")
    if isinstance(scale, str):
        if scale not in ("learned", "row_norms"):
            raise ValueError(f"{rule} Write scale='learned'.")
    elif scale is not None:
        if not isinstance(scale, int | float):
            raise TypeError(f"{rule} Write scale=None for no scale.")
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
