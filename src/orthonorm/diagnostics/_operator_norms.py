"""Layers as operators on whole inputs: what an orthogonal kernel does not promise, measured layer by layer."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from orthonorm.functional._convolution_norms import circular_singular_values, linear_map_norm, zero_padded_bound
from orthonorm.functional._precision import in_float64

from ._forward_hooks import LAYERS, as_written
from ._lipschitz_constants import lipschitz_constant

__all__ = ["LayerOperator", "chain_norm", "operator_norms"]

_Shapes = tuple[torch.Size, torch.Size]
"""Of the input and of the output of a layer."""


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
    """How it was found: `"svd"`, `"fft"`, or `"power iteration and bound"`; `"empty"` for a weight without entries;
    `"not finite"` where the weight is not, and the bounds are NaN."""


def operator_norms(
    model: nn.Module, inputs: Float[Tensor, "batch *rest"], *, iterations: int = 100
) -> list[LayerOperator]:
    r"""Return the norm of every Linear and convolution of a model as an operator: $\max |A x| / |x|$, without the bias.

    Rows of a kernel that are orthonormal make a Linear layer an operator of norm 1 (`k` groups of them one of a norm of
    up to the square root of `k`), and a convolution only where its windows do not overlap: otherwise its norm lies
    between 1 and the square root of the number of windows that see a point. Exact by SVD for Linear and by FFT for a
    circular padding that keeps the size; for zero padding, and for transposed convolutions, power iteration from below
    and a certain bound from above.

    Args:
        model: any module that takes `inputs`; it is run once in evaluation mode, to see the sizes, and uncompiled.
        inputs: one batch.
        iterations: steps of the power iteration.

    Returns:
        One entry a layer, in the order of the model; of a layer that runs several times for the size of its first run.

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

    Source: `orthonorm.functional._convolution_norms`.
    """
    with as_written(model) as model, _evaluating(model):
        calls = _first_calls(model, inputs)
        return [_layer_operator(fqn, module, shapes, iterations) for fqn, (module, shapes) in calls.items()]


def chain_norm(chain: nn.Module, inputs: Float[Tensor, "batch *rest"], *, iterations: int = 100) -> LayerOperator:
    r"""Return bounds of a chain's Lipschitz constant: the product of its parts', and the norm of its derivative.

    $$\|J(x)\| \le \operatorname{Lip}(f_L \circ \cdots \circ f_1) \le \prod_l \operatorname{Lip}(f_l)$$

    J is the derivative at a fixed pseudo-random x, and its norm comes from power iteration. For a chain of linear
    layers alone both bound the norm of its matrix. A layer that stands in the chain twice counts twice.

    Args:
        chain: Linear and convolution layers and activations in a row, in `Sequential`s; or one layer.
        inputs: one batch; only its size matters.
        iterations: steps of the power iteration.

    Returns:
        One entry with `layer="chain"`; the bounds are those of the chain in evaluation mode, without dropout.

    Raises:
        TypeError: if `chain` is not a module, or holds anything else (a normalization, a pooling, a shortcut, an
            attention), for which no bound follows from its layers.
        ValueError: if an activation jumps (`Hardshrink`), so that nothing bounds the chain; if it has no layer; as
            `operator_norms` for a layer.

    Examples:
        >>> import torch, orthonorm as on
        >>> chain = torch.nn.Sequential(on.OrthogonalLinear(8, 6), torch.nn.LeakyReLU(3.0), on.OrthogonalLinear(6, 4))
        >>> round(on.chain_norm(chain, torch.zeros(1, 8)).upper, 5)
        3.0

    Source: the constant of a composition is at most the product of the constants.
    """
    with as_written(chain) as chain, _evaluating(chain):
        steps = list(_steps("", chain))
        constants = [_constant(fqn, module) for fqn, module in steps]
        if all(constant is not None for constant in constants):
            raise ValueError(f"this {type(chain).__name__} has no Linear or convolution layer to look at.")
        upper, x = 1.0, inputs.detach()[:1].clone()
        for (fqn, module), constant in zip(steps, constants, strict=True):
            before = x.shape
            with torch.no_grad():
                x = module(x)
            upper *= _upper(fqn, module, (before, x.shape))[0] if constant is None else constant
        lower = _derivative_norm([module for _, module in steps], inputs[:1], iterations)
    return LayerOperator("chain", min(lower, upper), upper, None, "product of the layers")


def _steps(fqn: str, module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield name and module of each step of a chain, through `Sequential`s in it; one that stands twice, twice."""
    module = getattr(module, "_orig_mod", module)  # behind torch.compile
    if type(module).forward is not nn.Sequential.forward:
        yield fqn, module
        return
    for name, child in module._modules.items():
        assert child is not None  # a Sequential calls each
        yield from _steps(f"{fqn}.{name}" if fqn else name, child)


# A class that derives from a layer and computes otherwise (an adapter added to it) is another operator.
_FORWARDS = [
    kind.forward
    for kind in (
        nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
    )
]  # fmt: skip


def _constant(fqn: str, module: nn.Module) -> float | None:
    """Return the Lipschitz constant of a step that is no layer; None for a layer."""
    if isinstance(module, LAYERS) and type(module).forward in _FORWARDS:
        return None
    constant = lipschitz_constant(module)
    if constant is None:
        raise TypeError(
            f"a chain is made of Linear, convolutions and activations of a known Lipschitz constant; got "
            f"{fqn or 'the model'!r}, a {type(module).__name__}. Bound the parts before and after it by themselves."
        )
    if constant == math.inf:
        raise ValueError(
            f"{fqn}, a {module}, jumps or grows without limit, so no Lipschitz constant bounds the chain. Bound the "
            "parts before and after it by themselves, or use a continuous activation."
        )
    return constant


def _derivative_norm(modules: list[nn.Module], example: Tensor, iterations: int) -> float:
    """Return a lower bound of the norm of a chain's derivative at a fixed pseudo-random point."""
    # At zero, an obvious choice, activations have kinks, where automatic derivatives need not be any derivative.
    generator = torch.Generator().manual_seed(1)
    point = torch.randn(example.shape, generator=generator, dtype=torch.float64, device=generator.device).to(example)
    with torch.enable_grad():
        y = point.requires_grad_().clone()  # an activation may work in place
        for module in modules:
            y = _frozen(module, module.bias)(y) if isinstance(module, LAYERS) else module(y)
    # The transposed derivative has the same norm.
    return linear_map_norm(
        lambda v: torch.autograd.grad(y, point, v, create_graph=True)[0], y.detach(), iterations=iterations
    )


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode and back."""
    training = [module for module in model.modules() if module.training]
    try:
        model.eval()
        yield
    finally:
        for module in training:
            module.training = True


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


def _layer_operator(fqn: str, module: nn.Module, shapes: _Shapes, iterations: int) -> LayerOperator:
    upper, smallest, how = _upper(fqn, module, shapes)
    if how != _BOUND:
        return LayerOperator(fqn, upper, upper, smallest, how)
    assert isinstance(module, nn.modules.conv._ConvNd)
    example = module.weight.new_zeros((1, *shapes[0][-len(module.kernel_size) - 1 :]))
    lower = linear_map_norm(_frozen(module, None), example, iterations=iterations)
    return LayerOperator(fqn, min(lower, upper), upper, None, how)  # round-off may have it above


_BOUND = "power iteration and bound"


def _upper(fqn: str, module: nn.Module, shapes: _Shapes) -> tuple[float, float | None, str]:
    """Return the norm of a layer, or a bound above it; its smallest singular value, if known; how they were found."""
    weight = _weight(module)
    if weight.is_meta:
        raise ValueError(
            f"{fqn or 'the layer'} is on the meta device, which holds no values. Move it to another one (to_empty) and "
            "load its weights first."
        )
    if not bool(torch.isfinite(weight).all()):
        return math.nan, None, "not finite"
    if weight.numel() == 0:
        return 0.0, 0.0, "empty"
    if isinstance(module, nn.Linear):
        values = torch.linalg.svdvals(in_float64(weight))
        return float(values[0]), float(values[-1]), "svd"
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
        return float(values[0]), float(values[-1]), "fft"
    if module.padding_mode != "zeros":
        raise ValueError(
            f"{fqn or 'the layer'} has padding_mode={module.padding_mode!r}, which copies inputs into the border, "
            "so no bound follows from the kernel. Use 'zeros' or 'circular', or call linear_map_norm for a lower bound."
        )
    # A transposed convolution is the adjoint of the convolution from its output to its input, with the same kernel.
    return zero_padded_bound(weight, target if module.transposed else source, **options), None, _BOUND


def _weight(module: nn.Module) -> Tensor:
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.detach()


def _frozen(module: nn.Module, bias: Any) -> Callable[[Tensor], Tensor]:
    """Return the layer with this bias, or none, and with the weight as it is now, which no gradient reaches."""
    # Copies, as what was made in inference mode takes no part in a derivative.
    weight = _weight(module).clone()
    bias = None if bias is None else bias.detach().clone()
    if isinstance(module, nn.Linear):
        return lambda x: F.linear(x, weight, bias)
    assert isinstance(module, nn.modules.conv._ConvNd)
    if isinstance(module, nn.modules.conv._ConvTransposeNd):
        run: Callable[..., Tensor] = getattr(F, f"conv_transpose{len(module.kernel_size)}d")
        rest = (module.stride, module.padding, module.output_padding, module.groups, module.dilation)
        return lambda x: run(x, weight, bias, *rest)
    return lambda x: module._conv_forward(x, weight, bias)
