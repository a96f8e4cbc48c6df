"""Where the weights of a plain network start: one named function a start."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn


def paper_(layer: nn.Linear, random: torch.Generator) -> None:
    """Weight and bias uniform in +-1/sqrt(d), as the authors ran it."""
    bound = 1 / math.sqrt(layer.in_features)
    nn.init.uniform_(layer.weight, -bound, bound, generator=random)
    if layer.bias is not None:
        nn.init.uniform_(layer.bias, -bound, bound, generator=random)


def he_(layer: nn.Linear, random: torch.Generator) -> None:
    """Weight normal with variance 2/d (He et al. 2015), bias zero."""
    nn.init.normal_(layer.weight, 0.0, math.sqrt(2 / layer.in_features), generator=random)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def orthogonal_(layer: nn.Linear, random: torch.Generator) -> None:
    """Weight sqrt(2) times a random orthogonal matrix (Saxe et al. 2014, with He's gain), bias zero."""
    nn.init.orthogonal_(layer.weight, math.sqrt(2), generator=random)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


STARTS: dict[str, Callable[[nn.Linear, torch.Generator], None]] = {
    "paper": paper_,
    "he": he_,
    "orthogonal": orthogonal_,
}
