"""Layers as operators on whole inputs: what an orthogonal kernel does not promise, measured layer by layer."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from orthonorm.functional._precision import in_float64
from orthonorm.functional.norms._convolution_norms import circular_singular_values, linear_map_norm, zero_padded_bound
from orthonorm.parametrizations._arguments import refuse_meta

from ._forward_hooks import LAYERS, as_written, evaluating

__all__ = ["LayerOperator", "operator_norms"]

_Shapes = tuple[torch.Size, torch.Size]
"""Of the input and of the output of a layer."""


@dataclass(frozen=True)
class LayerOperator:
    """The norm of one layer as an operator on inputs of the size that it was given.

    Attributes:
        layer: fully qualified name of the layer.
        lower: the norm is at least this.
        upper: the norm is at most this; equal to `lower` where it is known exactly.
        smallest: smallest singular value, where the spectrum is known (Linear, circular padding).
        how: how it was found: `"svd"`, `"fft"`, or `"power iteration and bound"`; `"empty"` for a weight
            without entries; `"not finite"` where the weight is not, and the bounds are NaN.
    """

    layer: str
    lower: float
    upper: float
    smallest: float | None
    how: str


def operator_norms(
    model: nn.Module, inputs: Float[Tensor, "batch *rest"], *, iterations: int = 100
) -> list[LayerOperator]:
    r"""Return the norm of every Linear and convolution of a model as an operator: $\max |A x| / |x|$, without the bias.

    A Linear layer with orthonormal rows has norm 1, and with `k` groups of them at most the square root of `k`. A
    convolution with an orthonormal kernel has norm 1 only where its windows do not overlap. Otherwise the norm lies
    between 1 and the square root of the number of windows that see a point.

    The norm is exact for Linear (by SVD) and for a circular padding that keeps the size (by FFT). For zero padding and
    transposed convolutions, power iteration gives a lower bound, and a circular padding an upper one.

    Args:
        model: any module that takes `inputs`; it is run once in evaluation mode, to see the sizes, and uncompiled.
        inputs: one batch.
        iterations: steps of the power iteration.

    Returns:
        One entry per layer, in the order of the model. A layer that runs several times is measured at the size of its
        first run.

    Raises:
        TypeError: if `model` is not a module.
        ValueError: if a convolution pads by reflection or replication, or circularly without keeping the size; if the
            model has no Linear or convolution, or calls none.

    Examples:
        >>> import torch, orthonorm as on
        >>> layer = on.OrthogonalConv2d(8, 8, 3, padding=1, padding_mode="circular")
        >>> found = on.operator_norms(layer, torch.zeros(1, 8, 6, 6))[0]
        >>> found.how, 1 < found.upper < 3
        ('fft', True)
    """
    with as_written(model) as model, evaluating(model):
        calls = _first_calls(model, inputs)
        return [_layer_operator(fqn, module, shapes, iterations) for fqn, (module, shapes) in calls.items()]


def _first_calls(model: nn.Module, inputs: Tensor) -> dict[str, tuple[nn.Module, _Shapes]]:
    """Return each layer that ran, with the shapes of its first input and output."""
    layers = {module: fqn for fqn, module in model.named_modules() if isinstance(module, LAYERS)}
    if not layers:
        raise ValueError(f"this {type(model).__name__} has no Linear or convolution layer to look at.")
    found: dict[nn.Module, _Shapes] = {}

    def record(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> None:
        found.setdefault(module, ((args[0] if args else named["input"]).shape, output.shape))

    handles = [layer.register_forward_hook(record, with_kwargs=True) for layer in layers]
    try:
        with torch.no_grad():
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
    if not found:
        raise ValueError(
            f"this {type(model).__name__} called none of its {len(layers)} Linear and convolution layers, so the sizes "
            "of their inputs are not known. Pass the part of it that does."
        )
    return {fqn: (module, found[module]) for module, fqn in layers.items() if module in found}


def _layer_operator(fqn: str, module: Any, shapes: _Shapes, iterations: int) -> LayerOperator:
    upper, smallest, how = _upper(fqn, module, shapes)
    if how != _BOUND:
        return LayerOperator(fqn, upper, upper, smallest, how)
    example = module.weight.new_zeros((1, *shapes[0][-len(module.kernel_size) - 1 :]))
    lower = linear_map_norm(_without_bias(module), example, iterations=iterations)
    return LayerOperator(fqn, min(lower, upper), upper, None, how)  # round-off may have it above


_BOUND = "power iteration and bound"


def _upper(fqn: str, module: Any, shapes: _Shapes) -> tuple[float, float | None, str]:
    """Return the norm of a layer, or a bound above it; its smallest singular value, if known; how they were found."""
    weight = module.weight.detach()
    refuse_meta(weight, fqn or "the layer", "operator_norms")
    if not bool(torch.isfinite(weight).all()):
        return math.nan, None, "not finite"
    if weight.numel() == 0:
        return 0.0, 0.0, "empty"
    if isinstance(module, nn.Linear):
        values = torch.linalg.svdvals(in_float64(weight))
        return float(values[0]), float(values[-1]), "svd"
    dims = len(module.kernel_size)
    options = {"stride": module.stride, "dilation": module.dilation, "groups": module.groups}
    source, target = (shape[-dims:] for shape in shapes)
    if module.padding_mode == "circular":
        if any(n != m * s for n, m, s in zip(source, target, module.stride, strict=True)):
            raise ValueError(
                f"{fqn or 'the layer'} pads circularly, but by an amount that turns size {tuple(source)} into "
                f"{tuple(target)} at stride {module.stride}: some outputs repeat or are missing, and the FFT does not "
                "give its spectrum. Pad by dilation * (kernel - 1) / 2 and choose a size that the stride divides."
            )
        values = circular_singular_values(weight, source, **options)
        return float(values[0]), float(values[-1]), "fft"
    if module.padding_mode != "zeros":
        raise ValueError(
            f"{fqn or 'the layer'} has padding_mode={module.padding_mode!r}, which copies inputs into the border, "
            "so no bound follows from the kernel. Use 'zeros' or 'circular', or call linear_map_norm for a lower bound."
        )
    # A transposed convolution is the adjoint of the convolution from its output to its input, with the same kernel.
    return zero_padded_bound(weight, target if module.transposed else source, **options), None, _BOUND


def _without_bias(module: Any) -> Callable[[Tensor], Tensor]:
    """Return a convolution without its bias, and with the weight as it is now, which no gradient reaches."""
    # A copy, as what was made in inference mode takes no part in a derivative.
    weight = module.weight.detach().clone()
    if isinstance(module, nn.modules.conv._ConvTransposeNd):
        run: Callable[..., Tensor] = getattr(F, f"conv_transpose{len(module.kernel_size)}d")
        rest = (module.stride, module.padding, module.output_padding, module.groups, module.dilation)
        return lambda x: run(x, weight, None, *rest)
    return lambda x: module._conv_forward(x, weight, None)
