"""The Lipschitz constants of activations and of what only moves numbers, from their parameters."""

import math
from collections.abc import Callable
from typing import Any

from torch import nn

from orthonorm._max_min import MaxMin

__all__ = ["lipschitz_constant"]

# Note [constants of activations]
# An activation f works entry by entry, so its constant in the Euclidean norm is the largest |f'|, and infinite where f
# jumps. Those of GELU, SiLU and Mish lie above 1, where f'' = 0; of the exact GELU at sqrt 2, which gives
# (1 + erf 1) / 2 + 1 / (e sqrt pi). They were found in 40 digits, and are rounded up in the fourteenth.
# Softmax has the Jacobian diag(p) - p p^T, whose rows have the absolute sums 2 p (1 - p) <= 1/2.
_GELU = {"none": 1.12890414518516, "tanh": 1.12899306865878}

_CONSTANTS: dict[type[nn.Module], float | Callable[[Any], float]] = {
    nn.Identity: 1.0,
    nn.Flatten: 1.0,
    nn.Unflatten: 1.0,
    nn.ChannelShuffle: 1.0,
    nn.PixelShuffle: 1.0,
    nn.PixelUnshuffle: 1.0,
    # A constant border adds no distance.
    nn.ConstantPad1d: 1.0,  # and those of more dimensions, which share its forward
    # In evaluation mode these hand on what they get.
    nn.Dropout: 1.0,
    nn.Dropout1d: 1.0,
    nn.Dropout2d: 1.0,
    nn.Dropout3d: 1.0,
    nn.AlphaDropout: 1.0,
    nn.FeatureAlphaDropout: 1.0,
    nn.ReLU: 1.0,
    nn.Hardtanh: 1.0,  # and ReLU6, which is one
    nn.Tanh: 1.0,
    nn.LogSigmoid: 1.0,
    nn.Softsign: 1.0,
    nn.Softshrink: 1.0,
    nn.Tanhshrink: 1.0,
    nn.Sigmoid: 1 / 4,
    nn.Hardsigmoid: 0.16666667163373,  # 1/6 in float32, with which torch differentiates in any type, is above 1/6
    nn.Hardswish: 3 / 2,
    nn.SELU: 1.75809934084738,
    nn.SiLU: 1.09983932012887,
    nn.Mish: 1.08849816125173,
    MaxMin: 1.0,
    nn.Softmax: 1 / 2,
    nn.Softmin: 1 / 2,
    nn.Softmax2d: 1 / 2,
    nn.LeakyReLU: lambda f: max(1.0, abs(f.negative_slope)),
    nn.PReLU: lambda f: float(f.weight.detach().abs().clamp_min(1).amax()),  # NaN stays NaN
    nn.RReLU: lambda f: max(1.0, abs(f.lower + f.upper) / 2),  # in evaluation mode the mean slope
    nn.ELU: lambda f: max(1.0, abs(f.alpha)),
    nn.CELU: lambda f: 1.0 if f.alpha > 0 else math.inf,  # below 0 it falls as an exponential
    nn.GELU: lambda f: _GELU[f.approximate],
    # From the threshold on it is the identity: a jump of exp(-threshold) / beta, 2e-9 by default, not counted.
    nn.Softplus: lambda f: 1.0 if f.threshold >= 20 else math.inf,
    nn.Hardshrink: lambda f: 1.0 if f.lambd == 0 else math.inf,
    nn.Threshold: lambda f: 1.0 if f.value == f.threshold else math.inf,
}


def lipschitz_constant(module: nn.Module) -> float | None:
    r"""Return the smallest L with |f(x) - f(y)| <= L |x - y| of an activation or what stands by it, in evaluation.

    $$L = \sup_x |f'(x)| \quad \text{for } f \text{ taken entry by entry}$$

    Args:
        module: an activation of `torch.nn`, a dropout, or what moves numbers to other places, as `Flatten`.

    Returns:
        The constant, infinite where the activation jumps (`Hardshrink`); None for a module that the table does not
        know, or that changes the `forward` of the one that it derives from.

    Examples:
        >>> from torch import nn
        >>> lipschitz_constant(nn.LeakyReLU(3.0)), lipschitz_constant(nn.Hardswish()), lipschitz_constant(nn.GLU())
        (3.0, 1.5, None)
    """
    for kind, constant in _CONSTANTS.items():
        if type(module).forward is kind.forward:
            return constant(module) if callable(constant) else constant
    return None
