"""What a row of the table of surgery is, and what its checks compare with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import oracle
import orthonorm as on
from orthogonal_layers import free

__all__ = ["Row", "affected", "assert_right", "layer_of", "weight_from"]


@dataclass(frozen=True)
class Row:
    """What other code does to an orthogonal weight, and what comes of it."""

    what: str
    """In the words of a user: code, as a rule."""
    outcome: str
    """What comes of it; of an error, only what its type does not say."""
    check: Callable[[], None] | None = None
    """Does it and compares the numbers and gradients; of an error, does what cures it."""
    act: Callable[[Any], object] | None = None
    """What raises, done to a layer of `layer_of`."""
    raises: type[Exception] | None = None
    names: tuple[str, ...] = ()
    """What the message of the error names."""
    by: str = "orthonorm"
    """Who raises the error."""
    cure: str = ""
    """What to do instead, or beside."""
    intact: bool = True
    """Whether the layer is after the error what it was before."""
    needs: str = ""
    """The package that it takes."""


def layer_of(scale: Any = "learned", *, inputs: int = 8, outputs: int = 4, kind: type = nn.Linear) -> Any:
    """A trained layer in float64: neither V nor the scale is that of its start."""
    layer = kind(inputs, outputs).double()
    if not hasattr(layer, "parametrizations"):
        on.orthogonal_weight_norm(layer, scale=scale)
    with torch.no_grad():
        free(layer).normal_()
        for factor in affected(layer)[1:]:
            factor.uniform_(0.5, 2.0)
    return layer


def affected(layer: Any) -> list[nn.Parameter]:
    """V, and the learned scale if there is one."""
    scale = layer.parametrizations["weight"][0].scale
    return [free(layer), *([scale] if isinstance(scale, nn.Parameter) else [])]


def weight_from(V: Tensor, scale: Tensor | float = 1.0) -> Tensor:
    """The weight of V and a scale, by the singular value decomposition."""
    factor = scale[:, None] if isinstance(scale, Tensor) else scale
    return factor * oracle.polar_factor(V)


def assert_right(layer: Any, V: Tensor | None = None, scale: Tensor | None = None) -> None:
    """Compare a layer's output, and the gradients of V and the scale, with the oracle of V and the scale.

    Args:
        layer: a linear layer in float64.
        V, scale: what it is to compute with, V up to what does not change W; None for what it holds.
    """
    held = affected(layer)
    V = held[0].detach() if V is None else V.detach()
    g = torch.ones(len(V)).double() if len(held) == 1 else (held[1] if scale is None else scale).detach()
    x, G = torch.randn(3, V.shape[1]).double(), torch.randn(3, len(V)).double()
    U, dW = oracle.polar_factor(V), G.T @ x
    output = layer(x)
    torch.testing.assert_close(output, x @ (g[:, None] * U).T + layer.bias, rtol=0, atol=1e-10)
    gradients = torch.autograd.grad((output * G).sum(), held)
    expected = [oracle.gradient_of_polar(held[0].detach(), g[:, None] * dW, center=False), (U * dW).sum(1)]
    for gradient, value in zip(gradients, expected, strict=False):
        torch.testing.assert_close(gradient, value, rtol=0, atol=1e-9)
