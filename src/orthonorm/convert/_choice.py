"""Which layers of a model are converted where no filter says."""

from collections.abc import Callable

from torch import nn

from orthonorm.functional._rows import as_rows
from orthonorm.parametrizations._registration import row_layout

from ._layer_rules import BY_DEFAULT

__all__ = ["Filter", "default_filter", "row_length"]

Filter = Callable[[nn.Module, str], bool]


def row_length(module: nn.Module, name: str) -> int | None:
    """Return the length of a tensor's rows; None where it has none, which is refused later by name."""
    weight = module._parameters.get(name)
    if weight is None or isinstance(weight, nn.parameter.UninitializedParameter):
        return None
    if weight.ndim < 2 or not weight.is_floating_point():
        return None
    groups, transposed = row_layout(module) if name == "weight" else (1, False)
    return as_rows(weight.detach(), groups=groups, transposed=transposed).shape[-1]


def default_filter(model: nn.Module) -> Filter:
    """Return the filter that takes every Conv and Linear but what has nothing to gain from it.

    Left out are depthwise convolutions (one input channel a group), layers of fewer than 3 inputs a row, and the last
    Linear of the model, its classifier, which the paper keeps plain. Recurrent, attention and embedding layers are
    taken only when a filter chooses them: orthogonal gates or tables are another model, not a better start of it.

    Args:
        model: the whole model, of which the last Linear is left out.

    Example:
        >>> from torch import nn
        >>> import orthonorm as on
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8, 2))
        >>> usual = on.default_filter(model)
        >>> [name for name, module in model.named_modules() if usual(module, name) and name != "0"]
        ['1']
    """
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    last = linears[-1] if linears else None

    def keep(module: nn.Module, _: str) -> bool:
        if not isinstance(module, BY_DEFAULT) or module is last:
            return False
        if isinstance(module, nn.modules.conv._ConvNd) and 1 < module.groups == module.in_channels:
            return False
        d = row_length(module, "weight")
        return d is None or d >= 3  # what has no weight of its own is refused by name, with the cure

    return keep
