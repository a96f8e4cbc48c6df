"""A layer's weight as matrices whose rows are to be orthonormal, and back."""

from math import prod

from jaxtyping import Float
from torch import Tensor

__all__ = ["as_rows", "from_rows", "is_sharded"]

# Note [rows of a convolution]
# A convolution's weight (out, in/groups, *kernel) flattens to (out, in/groups * k); its output channels come in
# `groups` blocks that never see one another, so each block is a matrix of its own. A transposed convolution's weight
# is (in, out/groups, *kernel): block g maps the input channels of group g to its out/groups output channels, whose
# filters are the rows (in/groups * k entries each) once the two channel dimensions are exchanged.
# A stack (E, out, in) is E matrices as it lies; stored as (E, in, out), each is transposed.


def as_rows(
    weight: Float[Tensor, "..."], *, groups: int = 1, transposed: bool = False, stacked: bool = False
) -> Float[Tensor, "groups n d"]:
    """Return the weight of a layer as one matrix of filters for each group of a convolution, or each of a stack.

    Args:
        weight: `(out, in/groups, *kernel)`, or `(in, out/groups, *kernel)` where `transposed`; a stack is
            `(E, out, in)`, or `(E, in, out)` where `transposed`.
        groups: the convolution's own groups.
        transposed: whether it is a transposed convolution's weight, or stored with its inputs first.
        stacked: whether it is a stack of matrices.

    Examples:
        >>> import torch
        >>> as_rows(torch.zeros(16, 4, 3, 3), groups=2).shape
        torch.Size([2, 8, 36])
    """
    if stacked:
        return weight.mT if transposed else weight
    if not transposed:
        return weight.reshape(groups, weight.shape[0] // groups, prod(weight.shape[1:]))
    blocks = weight.unflatten(0, (groups, weight.shape[0] // groups)).transpose(1, 2)
    return blocks.flatten(2) if blocks.ndim > 3 else blocks


def from_rows(
    rows: Float[Tensor, "groups n d"], shape: tuple[int, ...], *, transposed: bool = False, stacked: bool = False
) -> Float[Tensor, "..."]:
    """Return the weight of the given shape whose `as_rows` is `rows`."""
    if stacked:
        return rows.mT.contiguous() if transposed else rows
    if not transposed:
        return rows.reshape(shape)
    groups, n, _ = rows.shape
    weight = rows.reshape(groups, n, shape[0] // groups, *shape[2:]).transpose(1, 2).reshape(shape)
    # Laid out as a plain layer's weight: an initialisation draws its numbers in the order of memory.
    return weight.contiguous()


def is_sharded(tensor: Tensor) -> bool:
    """Return whether each rank holds only a part of a tensor, which is then a DTensor.

    It is known by what it has, since importing torch.distributed.tensor takes half a second that most never need.
    """
    return getattr(tensor, "device_mesh", None) is not None
