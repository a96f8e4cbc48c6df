"""`OrthogonalConfig` and `OLMConfig`: the options that a conversion gives to every layer."""

from dataclasses import dataclass, fields, replace

import torch

from orthonorm._nearest_name import refusing_unknown_options
from orthonorm.functional._groups import row_limit
from orthonorm.parametrizations._options import Initial, Options

from ._layer_rules import Target

__all__ = ["OLMConfig", "OrthogonalConfig"]


@refusing_unknown_options
@dataclass(frozen=True, kw_only=True)
class OrthogonalConfig(Options):
    """How `orthogonalize_` treats every layer that it meets.

    Choose it for one orthonormal group a layer, with a scale where nothing else rescales the signal, and with
    `scale="row_norms"` for a pretrained network. Choose `OLMConfig` for a CNN without normalization layers, and to
    follow the paper.

    Recurrent weights `weight_hh` are uncentred and have one group a gate, whatever `group_size` and `center` are.

    Args:
        group_size: rows per group *at most*: it is cut to each layer's limit. None for the limit itself.
        center: subtract each row's mean first, as the paper does.
        grouping: `"balanced"` (groups as even as possible) or `"tail"` (full groups and a smaller last one).
        tall: what a weight of more rows than columns becomes: `"groups"` of orthonormal rows, or `"columns"`,
            orthonormal columns (`group_size` is None then and `center` False).
        scale: None; `"learned"` for a learned factor per row that starts at 1; `"row_norms"` for one that starts at the
            row norms of the weight that was there, for pretrained weights; or a fixed positive number. A step of
            Adam changes an entry by about `scale * lr / |V|`.
        initial: what V starts as: `"orthonormal"` for a multiple of the orthonormal matrix, of the norm of the weight
            that was there; `"weight"` for that weight itself, as in the paper's experiments.
        blocks: number of equal blocks of rows, or their sizes, that groups must not straddle (the q, k and v of a fused
            projection, heads); None for what the type of the layer says.
        method: how Sigma^{-1/2} is computed: `"eigh"`, `"newton"`, or `"auto"`, which chooses by device, dtype and
            whether the code is compiled.
        precision: `"auto"` transforms float32 weights in float32, in as many passes as accuracy needs; `"float64"`
            transforms them in float64, which is slower and more exact.
        input_weights: also take `weight_ih` of recurrent layers, not only `weight_hh`.

    Raises:
        TypeError, ValueError: if an option could not be right for any layer.

    Examples:
        >>> import orthonorm as on
        >>> on.OrthogonalConfig(group_size=64).grouping
        'balanced'
    """

    input_weights: bool = False

    def options_for(self, target: Target, d: int | None) -> Options:
        """Return the options of `orthogonal_weight_norm` for rows of length d, the group size cut to its limit."""
        options = Options(**{field.name: getattr(self, field.name) for field in fields(Options)})
        if not target.takes_blocks or self.blocks is None:
            options = replace(options, blocks=target.blocks)
        options = replace(options, **target.options)
        if d is not None and options.group_size:
            limit = max(1, row_limit(d, options.center))
            options = replace(options, group_size=min(options.group_size, limit))
        return options


@refusing_unknown_options
@dataclass(frozen=True, kw_only=True)
class OLMConfig(OrthogonalConfig):
    """The paper's orthogonal linear module: `OrthogonalConfig` with its choices for defaults.

    Rows are centred, groups hold 64 rows, and V starts as the weight that was there. Its condition number is above 1
    then, so that W moves faster at first than the effective learning rate of `inspect` says.

    Args:
        group_size, center, grouping, tall, scale, initial, blocks, method, precision: as in `OrthogonalConfig`.
        input_weights: as in `OrthogonalConfig`.

    Raises:
        TypeError, ValueError: as `OrthogonalConfig`.

    Examples:
        >>> import orthonorm as on
        >>> config = on.OLMConfig()
        >>> config.group_size, config.center, config.initial
        (64, True, 'weight')

    Source: the paper's experiments.
    """

    group_size: int | None = 64
    center: bool = True
    initial: Initial = "weight"


# A checkpoint that holds a configuration, such as Lightning's hyperparameters, loads with torch's `weights_only=True`.
torch.serialization.add_safe_globals([OrthogonalConfig, OLMConfig])
