"""Which layers of a model are converted where no filter says, and why the others are not."""

from collections.abc import Callable

from torch import nn

from orthonorm.functional._rows import as_rows
from orthonorm.parametrizations._orthogonal_weights import orthogonal_weights
from orthonorm.parametrizations._row_layout import row_layout

from ._layer_rules import is_taken_by_default, why_type_is_left
from ._output_layers import output_layers

__all__ = ["Filter", "default_filter", "reasons_to_leave", "row_length"]

Filter = Callable[[nn.Module, str], bool]


def row_length(module: nn.Module, name: str, *, stacked: bool = False) -> int | None:
    """Return the length of a tensor's rows; None where it has none, which is refused later by name."""
    weight = module._parameters.get(name)
    if weight is None or isinstance(weight, nn.parameter.UninitializedParameter):
        return None
    if weight.ndim < 2 or not weight.is_floating_point():
        return None
    if stacked and weight.ndim != 3:
        return None
    groups, transposed = row_layout(module, name, stacked=stacked)
    return as_rows(weight.detach(), groups=groups, transposed=transposed, stacked=stacked).shape[-1]


def reasons_to_leave(model: nn.Module) -> Callable[[nn.Module], str | None]:
    """Return the function that says why the default choice leaves a module of the model as it is; None if it does not.

    Args:
        model: the whole model, which names its output layers.
    """
    outputs = output_layers(model)

    def reason(module: nn.Module) -> str | None:
        if not is_taken_by_default(module):
            return why_type_is_left(module)
        if id(module) in outputs:
            return outputs[id(module)]
        if isinstance(module, nn.modules.conv._ConvNd) and 1 < module.groups == module.in_channels:
            return "depthwise convolution"
        d = row_length(module, "weight")
        # What has no weight of its own is refused by name, with the cure.
        return None if d is None or d >= 3 else "fewer than 3 inputs per row"

    return reason


def default_filter(model: nn.Module) -> Filter:
    """Return the filter that `orthogonalize_` uses by default: each layer except those with nothing to gain.

    It takes every Linear, convolution and attention projection. Left out are the output layer (`conversion_plan` shows
    which one, and how it is known), depthwise convolutions, layers of fewer than 3 inputs per row, and modules that
    hold an orthogonal weight already. Recurrent and embedding layers are taken only when a filter chooses them, because
    an orthogonal gate or table changes what the model can represent. A filter replaces this one: write
    `lambda m, name: usual(m, name) or isinstance(m, nn.GRU)` to take a recurrent layer as well.

    Args:
        model: the whole model, which names its output layers.

    Returns:
        A function of a module and its fully qualified name: True where `orthogonalize_` converts the module.

    Raises:
        TypeError: if `model` is not a module.

    Examples:
        >>> from torch import nn
        >>> import orthonorm as on
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8, 2))
        >>> usual = on.default_filter(model)
        >>> [name for name, module in model.named_modules() if usual(module, name) and name != "0"]
        ['1']
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    reason = reasons_to_leave(model)
    return lambda module, _: reason(module) is None and next(orthogonal_weights(module), None) is None
