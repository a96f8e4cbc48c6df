"""Layers as operators on whole inputs: what an orthogonal kernel does not promise, measured layer by layer."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from .functional.operator_norms import circular_singular_values, linear_map_norm, zero_padded_bound
from .functional.precision import in_float64

__all__ = ["LayerOperator", "chain_norm", "operator_norms"]

# What may stand in a chain between the layers: each has a Lipschitz constant of 1.
_LIPSCHITZ_ONE = (
    nn.Identity, nn.Flatten, nn.Unflatten, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.ELU,
    nn.Hardtanh, nn.LogSigmoid, nn.Softsign,
)  # fmt: skip


@dataclass(frozen=True)
class LayerOperator:
    """The norm of one layer as an operator on inputs of the size that it was given."""

    layer: str
    """Fully qualified name of the layer."""
    lower: float
    """The norm is at least this."""
    upper: float
    """The norm is at most this; equal to `lower` where it is known exactly."""
    smallest: float | None
    """Smallest singular value, where the spectrum is known (Linear, circular padding)."""
    how: str
    """How it was found: `"svd"`, `"fft"`, or `"power iteration and bound"`."""


def operator_norms(
    model: nn.Module, inputs: Float[Tensor, "batch *rest"], *, iterations: int = 100
) -> list[LayerOperator]:
    r"""Return the norm of every Linear and convolution of a model as an operator: $\max |A x| / |x|$, without the bias.

    Rows of a kernel that are orthonormal make a Linear layer an operator of norm 1, and a convolution only where its
    windows do not overlap: otherwise its norm lies between 1 and the square root of the number of windows that see a
    point. Exact by SVD for Linear and by FFT for a circular padding that keeps the size; for zero padding, and for
    transposed convolutions, power iteration from below and a certain bound from above.

    Args:
        model: any module that takes `inputs`; it is run once in evaluation mode, to see the sizes.
        inputs: one batch.
        iterations: steps of the power iteration.

    Returns:
        One entry a layer, in the order of the model.

    Raises:
        ValueError: if a convolution pads by reflection or replication, or circularly without keeping the size; if the
            model has no Linear or convolution.

    Example:
        >>> import torch, orthonorm as on
        >>> layer = on.OrthogonalConv2d(8, 8, 3, padding=1, padding_mode="circular")
        >>> found = on.operator_norms(layer, torch.zeros(1, 8, 6, 6))[0]
        >>> found.how, 1 < found.upper < 3
        ('fft', True)

    Source: `orthonorm.functional.operator_norms`.
    """
    shapes = _input_shapes(model, inputs)
    if not shapes:
        raise ValueError(f"this {type(model).__name__} has no Linear or convolution layer to look at.")
    return [_layer_operator(fqn, module, shape, iterations) for fqn, (module, shape) in shapes.items()]


def chain_norm(chain: nn.Sequential, inputs: Float[Tensor, "batch *rest"], *, iterations: int = 100) -> LayerOperator:
    r"""Return bounds of the norm of a chain: the product of its layers' bounds above, power iteration below.

    $$\|A_L \cdots A_1\| \le \prod_l \|A_l\|$$

    With activations of Lipschitz constant 1 between the layers the upper bound holds for the chain's own Lipschitz
    constant; the lower one is then that of the chain of its linear layers alone.

    Args:
        chain: Linear and convolution layers in a row, and activations whose Lipschitz constant is 1.
        inputs: one batch.
        iterations: steps of the power iteration.

    Returns:
        One entry with `layer="chain"`.

    Raises:
        TypeError: if the chain holds anything else (a normalization, a shortcut, an attention), for which no bound
            follows from its layers.

    Example:
        >>> import torch, orthonorm as on
        >>> chain = torch.nn.Sequential(on.OrthogonalLinear(8, 6), torch.nn.ReLU(), on.OrthogonalLinear(6, 4))
        >>> round(on.chain_norm(chain, torch.zeros(1, 8)).upper, 5)
        1.0

    Source: the norm is submultiplicative.
    """
    for fqn, module in chain.named_children():
        if not isinstance(module, (nn.Linear, nn.modules.conv._ConvNd, *_LIPSCHITZ_ONE)):
            raise TypeError(
                f"a chain is made of Linear, convolutions and activations of Lipschitz constant 1; got {fqn!r}, a "
                f"{type(module).__name__}. Bound the parts before and after it by themselves."
            )
    layers = operator_norms(chain, inputs, iterations=iterations)
    linear = [m for m in chain if isinstance(m, nn.Linear | nn.modules.conv._ConvNd | nn.Flatten | nn.Unflatten)]
    maps = [_linear_map(m) if isinstance(m, nn.Linear | nn.modules.conv._ConvNd) else m for m in linear]

    def apply(x: Tensor) -> Tensor:
        for step in maps:
            x = step(x)
        return x

    lower = linear_map_norm(apply, inputs[:1], iterations=iterations)
    upper = float(torch.tensor([layer.upper for layer in layers], dtype=torch.float64).prod())
    return LayerOperator("chain", lower, upper, None, "product of the layers")


def _input_shapes(model: nn.Module, inputs: Tensor) -> dict[str, tuple[nn.Module, tuple[torch.Size, torch.Size]]]:
    """Return each layer that ran, with the shape of one sample of its first input and output."""
    found: dict[str, tuple[nn.Module, tuple[torch.Size, torch.Size]]] = {}
    handles = []
    for fqn, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.modules.conv._ConvNd):

            def record(module: nn.Module, args: tuple[Tensor, ...], output: Tensor, fqn: str = fqn) -> None:
                found.setdefault(fqn, (module, (args[0].shape, output.shape)))

            handles.append(module.register_forward_hook(record))
    training = [module for module in model.modules() if module.training]
    try:
        model.eval()
        with torch.no_grad():
            model(inputs)
    finally:
        for handle in handles:
            handle.remove()
        for module in training:
            module.training = True
    return {fqn: found[fqn] for fqn, _ in model.named_modules() if fqn in found}


def _layer_operator(
    fqn: str, module: nn.Module, shapes: tuple[torch.Size, torch.Size], iterations: int
) -> LayerOperator:
    weight = module.weight.detach()  # type: ignore[union-attr, operator]
    if isinstance(module, nn.Linear):
        values = torch.linalg.svdvals(in_float64(weight))
        return LayerOperator(fqn, float(values[0]), float(values[0]), float(values[-1]), "svd")
    assert isinstance(module, nn.modules.conv._ConvNd)
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
        return LayerOperator(fqn, float(values[0]), float(values[0]), float(values[-1]), "fft")
    if module.padding_mode != "zeros":
        raise ValueError(
            f"{fqn or 'the layer'} has padding_mode={module.padding_mode!r}, which copies inputs into the border, "
            "so no bound follows from the kernel. Use 'zeros' or 'circular', or call linear_map_norm for a lower bound."
        )
    # A transposed convolution is the adjoint of the convolution from its output to its input, with the same kernel.
    upper = zero_padded_bound(weight, target if module.transposed else source, **options)
    shape = (1, *shapes[0][-dims - 1 :])
    lower = linear_map_norm(_linear_map(module), weight.new_zeros(shape), iterations=iterations)
    return LayerOperator(fqn, lower, upper, None, "power iteration and bound")


def _linear_map(module: nn.Module) -> Callable[[Tensor], Tensor]:
    """Return the layer without its bias, with the weight as it is now."""
    weight = module.weight.detach()  # type: ignore[union-attr, operator]
    if isinstance(module, nn.Linear):
        return lambda x: F.linear(x, weight)
    assert isinstance(module, nn.modules.conv._ConvNd)
    if isinstance(module, nn.modules.conv._ConvTransposeNd):
        run: Callable[..., Tensor] = getattr(F, f"conv_transpose{len(module.kernel_size)}d")
        rest = (module.stride, module.padding, module.output_padding, module.groups, module.dilation)
        return lambda x: run(x, weight, None, *rest)
    return lambda x: module._conv_forward(x, weight, None)
