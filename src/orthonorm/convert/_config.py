"""`OLMConfig`: the options that a conversion gives to every layer."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from orthonorm._nearest_name import refusing_unknown_options
from orthonorm.functional._groups import check_group_arguments, row_limit
from orthonorm.functional._methods import choose_method
from orthonorm.parametrizations._arguments import check_blocks, check_center, check_scale

from ._layer_rules import Target

__all__ = ["OLMConfig"]


@refusing_unknown_options
@dataclass(frozen=True, kw_only=True)
class OLMConfig:
    """How `orthogonalize_` treats every layer that it meets.

    Args:
        group_size: rows a group *at most*: it is cut to each layer's limit. None for the limit itself.
        center: subtract each row's mean first, as the paper does.
        grouping: `"balanced"` (groups as even as possible) or `"tail"` (full groups and a smaller last one).
        scale: False; True for a learned factor a row that starts at the norms of the rows; or a fixed number.
        method: how Sigma^{-1/2} is computed: `"eigh"`, `"newton"`, or `"auto"`, which is `"eigh"` on the CPU and
            `"newton"` elsewhere.
        blocks: number of equal blocks of rows, or their sizes, that groups must not straddle (the q, k and v of a fused
            projection, heads); None for what the type of the layer says.
        input_weights: also take `weight_ih` of recurrent layers, not only `weight_hh`.

    Raises:
        TypeError, ValueError: if an argument could not be right for any layer.

    Example:
        >>> import orthonorm as on
        >>> on.OLMConfig(group_size=64).grouping
        'balanced'

    Source: the paper's experiments, which use groups of 64.
    """

    group_size: int | None = None
    center: bool = True
    grouping: str = "balanced"
    scale: bool | float = False
    method: str = "auto"
    blocks: int | Sequence[int] | None = None
    input_weights: bool = False

    def __post_init__(self) -> None:
        """Refuse at construction what no layer could take."""
        check_group_arguments(self.group_size, self.grouping)
        choose_method(self.method, torch.device("cpu"))
        check_center(self.center)
        check_blocks(self.blocks)
        check_scale(self.scale)

    def options_for(self, target: Target, d: int | None) -> dict[str, Any]:
        """Return the options of `orthogonal_weight_norm` for rows of length d, the group size cut to its limit."""
        options = asdict(self)
        del options["input_weights"]
        if not target.takes_blocks or self.blocks is None:
            options["blocks"] = target.blocks
        options |= target.options
        if d is not None and options["group_size"]:
            options["group_size"] = min(options["group_size"], max(1, row_limit(d, options["center"])))
        return options
