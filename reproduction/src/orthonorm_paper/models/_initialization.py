"""How the weights of a plain network are initialized, by named functions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from orthonorm_paper.exceptions import UserError

Layer = nn.Linear | nn.Conv2d


def paper_(layer: Layer, random: torch.Generator) -> None:
    """As the authors ran it: linear uniform in +-1/sqrt(d); kernels normal with variance 2/(k k n).

    ``n`` is the number of output channels. The bias of a linear layer is drawn as its weight, that of a convolution is
    zero.
    """
    if isinstance(layer, nn.Conv2d):
        outputs = layer.out_channels * math.prod(layer.kernel_size)
        nn.init.normal_(layer.weight, 0.0, math.sqrt(2 / outputs), generator=random)
        _zero_bias(layer)
        return
    bound = 1 / math.sqrt(layer.in_features)
    nn.init.uniform_(layer.weight, -bound, bound, generator=random)
    if layer.bias is not None:
        nn.init.uniform_(layer.bias, -bound, bound, generator=random)


def he_(layer: Layer, random: torch.Generator) -> None:
    """Weight normal with variance 2/d, d the inputs of a row (He et al. 2015), bias zero."""
    nn.init.normal_(layer.weight, 0.0, math.sqrt(2 / layer.weight[0].numel()), generator=random)
    _zero_bias(layer)


def orthogonal_(layer: Layer, random: torch.Generator) -> None:
    """Weight sqrt(2) times a random orthogonal matrix (Saxe et al. 2014, with the gain of He et al.), bias zero."""
    nn.init.orthogonal_(layer.weight, math.sqrt(2), generator=random)
    _zero_bias(layer)


def _zero_bias(layer: Layer) -> None:
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


STARTS: dict[str, Callable[[Layer, torch.Generator], None]] = {
    "paper": paper_,
    "he": he_,
    "orthogonal": orthogonal_,
}


def start_(network: nn.Module, start: str, seed: int) -> None:
    """Draw every linear layer and convolution again, in the order of their names in the network.

    The result depends on the arguments alone; batch normalisations keep what torch gives them, scale 1 and shift 0.

    Raises:
        UserError: an unknown initialization.
    """
    if start not in STARTS:
        raise UserError(f"start must be one of {', '.join(STARTS)}; got {start!r}.")
    random = torch.Generator().manual_seed(seed)
    for layer in network.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            STARTS[start](layer, random)
