"""What the rules for `torch.vmap` share."""

from torch import Tensor

__all__ = ["batch_first"]


def batch_first(x: Tensor, dim: int | None, size: int) -> Tensor:
    """Return `x` with the mapped dimension in front, repeated `size` times where it is not mapped."""
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
