"""How a weight of any shape is read as groups of orthonormal rows."""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

from torch import Tensor

from orthonorm.functional._groups import check_group_arguments, group_sizes

__all__ = ["MatrixLayout", "matrix_layout"]


@dataclass(frozen=True)
class MatrixLayout:
    """Which rows (or columns) of a flattened weight are orthonormal together.

    A weight of shape `(out, ...)` is the matrix `(n, d) = (out, prod(...))`. Each group of rows is
    a block `(rows, d)` with `rows <= d`; a transposed layout has one block, the matrix's transpose. A stack `(E, n, d)`
    has these blocks in each of its E matrices.

    Attributes:
        n: the number of rows of the matrix.
        d: the number of its columns.
        transposed: whether its columns are orthonormal, and not its rows.
        sizes: the number of rows of each group.
        stack: the number of matrices of a stack; None for a weight that is one matrix.
    """

    n: int
    d: int
    transposed: bool
    sizes: tuple[int, ...]
    stack: int | None = None

    @property
    def count(self) -> int:
        """Return the number of blocks."""
        return len(self.sizes) * (1 if self.stack is None else self.stack)

    @property
    def bounds(self) -> tuple[tuple[int, int], ...]:
        """First and one-past-last row of the matrix for each group."""
        if self.transposed:
            return ((0, self.n),)
        bounds, start = [], 0
        for size in self.sizes:
            bounds.append((start, start + size))
            start += size
        return tuple(bounds)

    def blocks(self, weight: Tensor) -> list[Tensor]:
        """The groups of `weight` as matrices `(rows, d)`, `rows <= d`; views where strides allow."""
        matrices = [weight] if self.stack is None else weight.unbind(0)
        blocks = [matrix[a:b].reshape(b - a, -1) for matrix in matrices for a, b in self.bounds]
        return [block.mT for block in blocks] if self.transposed else blocks

    def __str__(self) -> str:
        if self.stack is not None:
            return f"{self.stack} matrices, each {replace(self, stack=None)}"
        if self.transposed:
            return f"{self.d} orthonormal columns of length {self.n}"
        if len(self.sizes) == 1:
            return f"{self.n} orthonormal rows of length {self.d}"
        sizes = " + ".join(map(str, self.sizes))
        return f"{len(self.sizes)} groups of rows ({sizes}), orthonormal within a group"


@lru_cache(maxsize=4096)
def matrix_layout(shape: tuple[int, ...], group_size: int | None = None, stacked: bool = False) -> MatrixLayout:
    """Read a weight's shape as groups of orthonormal rows.

    The weight is flattened to `n x d`. With `group_size=None` a wide or square weight is one group
    of `n` rows and a tall one (`n > d`) has orthonormal columns instead. With a group size the rows
    are split into `k = ceil(n / min(group_size, d))` groups as evenly as possible, wide or tall:
    an optimizer meets many layers, so the size means "at most". For a grouped convolution give a
    divisor of its `out/groups`: then no group straddles the convolution's own.

    Args:
        shape: shape of the weight, two dimensions or more, `(out, in/groups, *kernel)`.
        group_size: at most this many rows per group, or `None`.
        stacked: whether the shape is that of E matrices, `(E, n, d)`.

    Raises:
        TypeError: `group_size` is not a whole number.
        ValueError: the shape has fewer than two dimensions, or not three with `stacked`; `group_size` is below 1.

    Examples:
        >>> print(matrix_layout((64, 16, 3, 3)))
        64 orthonormal rows of length 144
        >>> print(matrix_layout((64, 16)))
        16 orthonormal columns of length 64
        >>> print(matrix_layout((10, 16), group_size=4))
        3 groups of rows (4 + 3 + 3), orthonormal within a group
        >>> print(matrix_layout((8, 10, 16), stacked=True))
        8 matrices, each 10 orthonormal rows of length 16

    Source: the paper's group based orthogonalization, uncentred, with errata 3.
    """
    if stacked:
        if len(shape) != 3:
            raise ValueError(
                f"a stack of matrices must have 3 dimensions (E, n, d); got the shape {tuple(shape)}. Put the "
                "others in a parameter group with stacked=False."
            )
        return replace(matrix_layout(shape[1:], group_size), stack=shape[0])
    if len(shape) < 2:
        raise ValueError(
            f"a weight with orthonormal rows must have at least 2 dimensions; got the shape {tuple(shape)}. Put biases "
            "and scales in a parameter group with manifold=False."
        )
    check_group_arguments(group_size, "balanced")
    n, d = shape[0], prod(shape[1:])
    if n == 0 or d == 0:
        return MatrixLayout(n, d, False, ())
    if group_size is None and n > d:
        return MatrixLayout(n, d, True, (d,))
    return MatrixLayout(n, d, False, group_sizes(n, d, group_size=min(group_size or d, d), center=False))
