"""Networks drawn at random from what `lipschitz_bound` knows, small enough for a dense Jacobian."""

import random
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import orthonorm as on

ACTIVATIONS: list[Any] = [
    nn.ReLU, nn.Tanh, nn.GELU, lambda: nn.GELU("tanh"), nn.SiLU, nn.Mish, nn.ELU, nn.SELU, nn.Softplus, nn.Hardswish,
    nn.Hardtanh, nn.LogSigmoid, nn.PReLU, nn.Identity, lambda: nn.LeakyReLU(2.0), lambda: nn.Softmax(1), nn.Dropout,
    nn.CELU, nn.Softsign, nn.Sigmoid, nn.Hardsigmoid, nn.RReLU,
]  # fmt: skip
MOST_NUMBERS = 96
"""That any tensor of a network holds."""


class Residual(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def constants(shape: tuple[int, ...] | None) -> dict[Any, Any]:
    """What declares a residual block, for the shape of a sample at any place or for all."""
    return {Residual: lambda block: 1 + on.lipschitz_bound(block.body, block.shape if shape else None).bound}


def linear(draw: random.Random, shape: tuple[int, ...]) -> nn.Module:
    layer = nn.Linear(shape[-1], draw.randint(2, 9), bias=draw.random() < 0.5)
    return changed(draw, layer)


def changed(draw: random.Random, layer: nn.Module) -> nn.Module:
    """Return the layer with a weight as it is, of another size, orthogonal, or of spectral norm 1."""
    how = draw.randrange(4)
    if how == 1:
        layer.weight.data.mul_(10 ** draw.uniform(-2, 2))  # type: ignore[operator, union-attr]
    if how == 2:
        scale = draw.choice([None, "learned", 0.5])
        on.orthogonal_weight_norm(layer, scale=scale, group_size=draw.choice([None, 1]))  # type: ignore[arg-type]
    if how == 3:
        parametrizations.spectral_norm(layer)
    return layer


def convolution(draw: random.Random, shape: tuple[int, ...]) -> nn.Module:
    channels, dims = shape[0], len(shape) - 1
    transposed = draw.random() < 0.25
    groups = draw.choice([g for g in (1, 2) if channels % g == 0])
    kernel, stride, dilation = (
        tuple(draw.choice(c) for _ in range(dims)) for c in ([1, 2, 3], [1, 1, 2, 3], [1, 1, 2])
    )
    if transposed:
        kind: Any = getattr(nn, f"ConvTranspose{dims}d")
        layer = kind(channels, 2 * groups, kernel, stride, draw.randint(0, 1), groups=groups, dilation=dilation)
    else:
        kind = getattr(nn, f"Conv{dims}d")
        mode = draw.choice(["zeros", "zeros", "circular", "reflect", "replicate"])
        padding = draw.randint(0, 2)
        layer = kind(
            channels, groups * draw.randint(1, 3), kernel, stride, padding, dilation, groups, padding_mode=mode
        )
    return changed(draw, layer)


def pooling(draw: random.Random, shape: tuple[int, ...]) -> nn.Module:
    dims = len(shape) - 1
    kernel, stride = draw.randint(1, 3), draw.randint(1, 3)
    kind = draw.choice(["MaxPool", "AvgPool", "AdaptiveAvgPool", "AdaptiveMaxPool"])
    make: Any = getattr(nn, f"{kind}{dims}d")
    if kind.startswith("Adaptive"):
        return make(draw.randint(1, 4))
    padding, ceiling = draw.randint(0, kernel // 2), draw.random() < 0.3
    if kind == "MaxPool":
        return make(kernel, stride, padding, draw.randint(1, 2), ceil_mode=ceiling)
    return make(kernel, stride, padding, ceil_mode=ceiling, count_include_pad=draw.random() < 0.5)


def normalization(draw: random.Random, shape: tuple[int, ...]) -> nn.Module:
    dims = len(shape) - 1
    norms: list[Any] = [
        getattr(nn, f"BatchNorm{dims or 1}d"), lambda c: nn.GroupNorm(1, c, eps=0.1), lambda _: nn.LayerNorm(shape[-1]),
    ]  # fmt: skip
    norm = draw.choice(norms)(shape[0])
    for tensor in [*norm.parameters(), *norm.buffers()]:
        if tensor.is_floating_point():
            tensor.data.uniform_(0.1, 2.0)
    return norm


def padding(draw: random.Random, shape: tuple[int, ...]) -> nn.Module:
    dims = len(shape) - 1
    kind: Any = getattr(nn, draw.choice(["ReflectionPad", "ReplicationPad", "CircularPad", "ZeroPad"]) + f"{dims}d")
    return kind(tuple(draw.randint(0, 1) for _ in range(2 * dims)))


def step(draw: random.Random, shape: tuple[int, ...]) -> nn.Module:
    """Return a module for samples of a shape."""
    if draw.random() < 0.35:
        return on.MaxMin() if shape[0] % 2 == 0 and draw.random() < 0.2 else draw.choice(ACTIVATIONS)()
    if draw.random() < 0.12:
        return normalization(draw, shape)
    if len(shape) == 1:
        return linear(draw, shape)
    kinds = [convolution, convolution, convolution, pooling, padding, linear]
    return nn.Flatten() if draw.random() < 0.1 else draw.choice(kinds)(draw, shape)


def network(seed: int) -> tuple[nn.Sequential, tuple[int, ...]]:
    """Return a network in evaluation mode, in float32 or float64, and the shape of a sample."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    dtype = draw.choice([torch.float32, torch.float64])
    shape = draw.choice([(draw.randint(2, 12),), (2, draw.randint(3, 12)), (2, 4, draw.randint(3, 6))])
    x, steps, length = torch.randn(1, *shape, dtype=dtype), [], draw.randint(1, 6)
    while len(steps) < length:
        body = step(draw, tuple(x.shape[1:])).to(dtype).eval()
        try:
            y = body(x)
        except (RuntimeError, ValueError):  # too small an input for it
            continue
        # A dilated max pooling may see padding alone: the output is then -inf, and torch's backward writes elsewhere.
        if not 0 < y.numel() <= MOST_NUMBERS or not bool(y.isfinite().all()):
            continue
        if y.shape == x.shape and draw.random() < 0.3:
            body = Residual(nn.Sequential(body))
            body.shape = tuple(x.shape[1:])  # type: ignore[assignment]
            y = body.eval()(x)
        steps.append(nn.Sequential(body) if draw.random() < 0.2 else body)
        x = y.detach()
    return nn.Sequential(*steps).eval(), shape


def in_exact_weights_(model: nn.Module) -> nn.Module:
    """Let a model compute in float64 with the weights that it has, of whatever type."""
    # In place: torch takes the property `weight` off a class that a copy would share.
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            parametrize.remove_parametrizations(module, "weight", leave_parametrized=True)
    return model.double()
