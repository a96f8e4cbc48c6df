"""Weights that are sharded among ranks on rows (DTensor): which whole groups of rows this rank holds."""

from typing import Any

from torch import Tensor

from orthonorm.functional._rows import is_sharded
from orthonorm.functional.stiefel._layout import matrix_layout

__all__ = ["check_shard", "held_rows", "local"]


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor, in the same memory: all of it where it is not sharded."""
    return tensor.to_local() if is_sharded(tensor) else tensor  # type: ignore[attr-defined]


def held_rows(tensor: Tensor) -> tuple[int, int] | None:
    """Return the first and one past the last row that this rank holds of a sharded tensor; None if not sharded."""
    if not is_sharded(tensor):
        return None
    sharded: Any = tensor
    mesh, n = sharded.device_mesh, tensor.shape[0]
    for dim, placement in enumerate(sharded.placements):
        if placement.is_shard():
            held = -(-n // mesh.size(dim))
            first = min(n, mesh.get_local_rank(dim) * held)
            return first, min(n, first + held)
    return 0, n


def check_shard(tensor: Tensor, group_size: int | None, stacked: bool = False) -> None:
    """Refuse a sharded weight of which a rank would hold a part of a group.

    Raises:
        TypeError: if it is sharded on another dimension than the rows, or on two dimensions of a mesh.
        ValueError: if a border between two ranks cuts a group, with the sizes that avoid it.
    """
    sharded: Any = tensor
    mesh, n = sharded.device_mesh, tensor.shape[0]
    dims = [dim for dim, placement in enumerate(sharded.placements) if not placement.is_replicate()]
    if not dims:
        return
    if len(dims) > 1 or not sharded.placements[dims[0]].is_shard(0):
        raise TypeError(
            "a sharded weight on the manifold must be sharded on its rows, over one dimension of the mesh; got "
            f"{tuple(sharded.placements)}. Shard(0) is what fully_shard makes; or use orthogonal_weight_norm, which "
            "trains an unconstrained parameter."
        )
    if stacked:  # whole matrices on each rank
        return
    ranks = mesh.size(dims[0])
    held = -(-n // ranks)
    if not _cut(tuple(tensor.shape), group_size, held):
        return
    d = tensor.numel() // n
    fitting = [size for size in range(min(held, d), 0, -1) if not _cut(tuple(tensor.shape), size, held)]
    layout = matrix_layout(tuple(tensor.shape), group_size)
    raise ValueError(
        f"a sharded weight on the manifold needs whole groups of rows on each rank; {ranks} ranks hold {held} rows "
        f"each of a weight of shape {tuple(tensor.shape)}, which is {layout}. Use "
        f"group_size={', '.join(map(str, fitting[:3]))}, or do not shard it."
    )


def _cut(shape: tuple[int, ...], group_size: int | None, held: int) -> bool:
    layout = matrix_layout(shape, group_size)
    return any(a // held != (b - 1) // held for a, b in layout.bounds)
