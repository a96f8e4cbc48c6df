"""The multi-layer perceptron of the paper's MNIST comparison."""

from __future__ import annotations

import math

import torch
from torch import nn

from orthonorm.paper.errors import UserError
from orthonorm.paper.models.starts import STARTS


def mlp(
    *,
    shape: tuple[int, ...],
    classes: int,
    start: str,
    seed: int,
    hidden_layers: int = 4,
    width: int = 100,
    dropout: float = 0.0,
) -> nn.Sequential:
    """Flatten, ``hidden_layers`` times (Linear, ReLU), and a linear classifier.

    Args:
        shape: shape of one input; its size is the d of the first layer.
        classes: outputs of the classifier.
        start: entry of ``STARTS``, used for every layer.
        seed: of the start.
        hidden_layers: the paper has 4, 6 and 8.
        width: units of each hidden layer.
        dropout: probability of dropout after each hidden layer; 0 adds no layer.

    Raises:
        UserError: an unknown start, fewer than one hidden layer or unit, or a wrong probability.

    Example:
        >>> network = mlp(shape=(1, 32, 32), classes=10, start="he", seed=0, hidden_layers=8)
        >>> [tuple(p.shape) for p in network.parameters() if p.dim() == 2][:2]
        [(100, 1024), (100, 100)]
    """
    if start not in STARTS:
        raise UserError(f"start is one of {', '.join(STARTS)}, got {start!r}")
    if hidden_layers < 1 or width < 1:
        raise UserError(f"an mlp has hidden layers and units, got {hidden_layers} of {width}")
    if not 0 <= dropout < 1:
        raise UserError(f"dropout is a probability in [0, 1), got {dropout!r}")
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = math.prod(shape)
    for _ in range(hidden_layers):
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        layers += [nn.Dropout(dropout)] if dropout else []
        inputs = width
    layers.append(nn.Linear(inputs, classes))
    random = torch.Generator().manual_seed(seed)
    for layer in layers:
        if isinstance(layer, nn.Linear):
            STARTS[start](layer, random)
    return nn.Sequential(*layers)
