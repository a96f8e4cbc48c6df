"""Other ways to orthogonal weights, that the ablations compare: torch's parametrization, and a penalty."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations

import orthonorm as on


def torch_orthogonal_layers_(model: nn.Module, layers: list[nn.Linear | nn.Conv2d]) -> nn.Module:
    """Make the weight of each layer orthogonal by ``torch.nn.utils.parametrizations.orthogonal``; in place."""
    for layer in layers:
        parametrizations.orthogonal(layer, "weight")
    return model


def add_penalty_(
    optimizer: torch.optim.Optimizer, layers: list[nn.Linear | nn.Conv2d], strength: float
) -> torch.optim.Optimizer:
    """Have an optimizer's step add the gradient of ``strength * sum |W W^T - I|_F^2`` first; returns the optimizer.

    The loss that is recorded stays the cross-entropy, as that of the methods without a penalty.
    """
    optimizer.register_step_pre_hook(partial(_add_gradients, layers, strength))
    return optimizer


def _add_gradients(layers: list[nn.Linear | nn.Conv2d], strength: float, *_: Any) -> None:
    with torch.enable_grad():
        weights = [layer.weight.detach().requires_grad_() for layer in layers]
        penalties = [on.functional.soft_orthogonality(weight.flatten(1)) for weight in weights]
        gradients = torch.autograd.grad(strength * torch.stack(penalties).sum(), weights)
    for layer, gradient in zip(layers, gradients, strict=True):
        if layer.weight.grad is not None:
            layer.weight.grad += gradient
