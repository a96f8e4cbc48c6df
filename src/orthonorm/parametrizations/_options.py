"""How a weight is made orthogonal: one object of options, which layers, conversions and the parametrization share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from orthonorm._nearest_name import refusing_unknown_options
from orthonorm.functional._groups import check_group_arguments, group_sizes
from orthonorm.functional._methods import choose_method
from orthonorm.functional._option_types import Grouping, MethodName, Precision, Tall, check_tall
from orthonorm.functional._precision import check_precision

from ._arguments import block_sizes, check_blocks, check_center, check_initial, check_scale

__all__ = ["Blocks", "Initial", "Options", "Scale", "split_rows"]

Blocks = int | Sequence[int] | None
"""The number of equal blocks of rows, or their sizes."""

Scale = float | Literal["learned", "row_norms"] | None
"""What the orthonormal rows are multiplied by."""

Initial = Literal["orthonormal", "weight"]
"""What the unconstrained parameter V is set to, where a weight is given."""


@refusing_unknown_options
@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of `orthogonal_weight_norm`, checked.

    Args:
        group_size, center, grouping, tall, scale, initial, blocks, method, precision: as in `orthogonal_weight_norm`.

    Raises:
        TypeError, ValueError: if an option could not be right for any weight.

    Examples:
        >>> Options(group_size=64).center
        False
    """

    group_size: int | None = None
    center: bool = False
    grouping: Grouping = "balanced"
    tall: Tall = "groups"
    scale: Scale = None
    initial: Initial = "orthonormal"
    blocks: Blocks = None
    method: MethodName = "auto"
    precision: Precision = "auto"

    def __post_init__(self) -> None:
        """Refuse at construction what no weight could take."""
        check_group_arguments(self.group_size, self.grouping)
        choose_method(self.method, torch.device("cpu"))
        check_precision(self.precision, torch.device("cpu"))
        check_center(self.center)
        check_tall(self.tall, group_size=self.group_size, center=self.center)
        check_blocks(self.blocks)
        check_scale(self.scale)
        check_initial(self.initial)


def split_rows(n: int, d: int, options: Options, groups: int) -> tuple[int, tuple[int, ...]]:
    """Return the number of equal blocks whose columns are to be orthonormal (0 for rows), and the group sizes."""
    blocks = block_sizes(n, options.blocks, groups)
    if options.tall == "columns" and any(size > d for size in blocks):
        if len(set(blocks)) > 1:
            raise ValueError(
                f"blocks must be equal with tall='columns', where one has more rows than the {d} columns; got "
                f"{blocks}. Pass tall='groups', or give each block a layer of its own."
            )
        return len(blocks), group_sizes(d, blocks[0])
    return 0, tuple(
        size
        for block in blocks
        for size in group_sizes(
            block, d, group_size=options.group_size, center=options.center, grouping=options.grouping
        )
    )
