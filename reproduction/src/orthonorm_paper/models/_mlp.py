"""The multi-layer perceptrons of the paper: MNIST's, and PIE's with batch normalisation or without."""

from __future__ import annotations

import math
from functools import partial

from torch import nn

from orthonorm_paper.exceptions import UserError

from ._checks import check_probability
from ._initialization import start_


def mlp(
    *,
    shape: tuple[int, ...],
    classes: int,
    start: str,
    seed: int,
    hidden_layers: int = 4,
    width: int = 100,
    batch_norm: bool = False,
    dropout: int | float = 0.0,
) -> nn.Sequential:
    """Flatten, ``hidden_layers`` times (Linear, ReLU), and a linear classifier.

    Args:
        shape: shape of one input; its size is the d of the first layer.
        classes: outputs of the classifier.
        start: entry of ``STARTS``, used for every layer.
        seed: of the initialization.
        hidden_layers: the paper has 4, 6 and 8.
        width: units of each hidden layer.
        batch_norm: normalise each hidden layer before its non-linearity.
        dropout: probability of dropout after each hidden layer; 0 adds no layer.

    Raises:
        UserError: an unknown initialization, fewer than one hidden layer or unit, or a wrong probability.

    Examples:
        >>> network = mlp(shape=(1, 32, 32), classes=10, start="he", seed=0, hidden_layers=8)
        >>> [tuple(p.shape) for p in network.parameters() if p.dim() == 2][:2]
        [(100, 1024), (100, 100)]
    """
    if hidden_layers < 1 or width < 1:
        raise UserError(f"hidden_layers and width of an mlp must be at least 1; got {hidden_layers} and {width}.")
    check_probability("dropout", dropout)
    layers: list[nn.Module] = [nn.Flatten()]
    inputs = math.prod(shape)
    for _ in range(hidden_layers):
        layers.append(nn.Linear(inputs, width))
        layers += [nn.BatchNorm1d(width)] if batch_norm else []
        layers.append(nn.ReLU())
        layers += [nn.Dropout(dropout)] if dropout else []
        inputs = width
    layers.append(nn.Linear(inputs, classes))
    network = nn.Sequential(*layers)
    start_(network, start, seed)
    return network


# The sizes of the PIE experiments: six linear layers, five of them hidden.
pie_mlp = partial(mlp, hidden_layers=5, width=128)
