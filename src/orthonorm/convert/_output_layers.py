"""Which layers are a model's outputs: what the model itself names, and otherwise what is registered last."""

from inspect import signature
from typing import Any

from torch import nn

from orthonorm.parametrizations._row_layout import stores_inputs_first

__all__ = ["output_layers"]

# The methods by which models tell their output layers: timm's, and transformers'.
_TELLING = ("get_classifier", "get_output_embeddings")


def output_layers(model: nn.Module) -> dict[int, str]:
    """Return the output layers of a model by id, each with how it is known.

    timm's `get_classifier` and transformers' `get_output_embeddings` are asked first, of the model and of the models
    in it. Where they tell nothing, the output layers are the last Linear as registered and, if a convolution is
    registered after it, the last layer of all; a convolution alone is no output layer. A model that names an empty
    classifier has no output layer in it.

    Args:
        model: the whole model.

    Examples:
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2))
        >>> list(output_layers(model).values())
        ['output layer: the last Linear as registered']
    """
    found: dict[int, str] = {}
    with_output: set[int] = set()  # the modules inside a model that tells its output layer,
    without: set[int] = set()  # and inside one that tells that it has none
    for module in model.modules():
        for method in _TELLING:
            told = _ask(module, method)
            if told is None:
                continue
            layers = [layer for part in told for layer in part.modules() if layer._parameters]
            found |= {id(layer): f"output layer: {method}()" for layer in layers}
            (with_output if layers else without).update(map(id, module.modules()))
    layers = [layer for layer in _layers(model) if id(layer) not in without]
    linears = [layer for layer in layers if not isinstance(layer, nn.modules.conv._ConvNd)]
    for last, kind in ((linears[-1:], "Linear"), (layers[1:][-1:], "layer")):
        if last and id(last[0]) not in with_output:
            found.setdefault(id(last[0]), f"output layer: the last {kind} as registered")
    return found


def _ask(module: nn.Module, method: str) -> list[nn.Module] | None:
    """Return the modules that a method of a model names as its outputs; None where it has no such method or answer."""
    if getattr(type(module), method, None) is None:  # not of a wrapper that hands on what it has not itself
        return None
    ask: Any = getattr(module, method)
    try:
        signature(ask).bind()
        told = ask()
    except (TypeError, NotImplementedError):  # another method of that name, or a model without outputs
        return None
    parts = list(told) if isinstance(told, list | tuple) else [told]
    return parts if all(isinstance(part, nn.Module) for part in parts) else None


def _layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers that could be an output, as registered: not the projection that ends an attention."""
    inside = {id(module.out_proj) for module in model.modules() if isinstance(module, nn.MultiheadAttention)}
    return [
        module
        for module in model.modules()
        if (isinstance(module, nn.Linear | nn.modules.conv._ConvNd) or stores_inputs_first(module))
        and id(module) not in inside
    ]
