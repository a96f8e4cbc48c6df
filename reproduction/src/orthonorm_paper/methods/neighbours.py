"""Other ways to orthogonal weights, that the ablations compare: torch's parametrization, and a penalty."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import orthonorm as on


def torch_orthogonal_layers_(model: nn.Module, layers: list[nn.Linear | nn.Conv2d]) -> nn.Module:
    """Make the weight of each layer orthogonal by ``torch.nn.utils.parametrizations.orthogonal``; in place."""
    for layer in layers:
        parametrizations.orthogonal(layer, "weight")
    return model


def add_penalty_(layers: list[nn.Linear | nn.Conv2d], strength: float) -> None:
    """Add the gradient of ``strength * sum |W W^T - I|_F^2`` to that of each weight, at every backward; in place.

    The loss that is recorded stays the cross-entropy, as that of the methods without a penalty. It is a hook of the
    weight and not of the optimizer's step, which may run forward and backward itself, in a closure.
    """
    for layer in layers:
        layer.weight.register_post_accumulate_grad_hook(partial(_add_gradient, strength))


def _add_gradient(strength: float, weight: Tensor) -> None:
    with torch.enable_grad():
        free = weight.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(strength * on.functional.soft_orthogonality(free.flatten(1)), free)
    assert weight.grad is not None
    weight.grad += gradient
