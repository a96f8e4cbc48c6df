"""Networks drawn at random: neither a Jacobian nor a pair of inputs is above the bound."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from diagnostics.random_networks import constants, in_exact_weights_, network

ROUNDING = 1 + 1e-13
"""Of what is measured, in float64."""


def largest_ratio(model: nn.Module, shape: tuple[int, ...], seed: int) -> float:
    """The largest norm of a Jacobian, and of a difference quotient, at some random inputs."""
    generator = torch.Generator().manual_seed(seed)
    found = 0.0
    for size in (0.01, 1.0, 30.0):
        x = size * torch.randn(shape, generator=generator, dtype=torch.float64)
        J: Any = torch.autograd.functional.jacobian(lambda v: model(v[None])[0], x)
        J = J.reshape(-1, x.numel())
        found = max(found, float(torch.linalg.matrix_norm(J, 2)))
        # Far apart, and close in the direction that the Jacobian stretches most.
        _, _, Vh = torch.linalg.svd(J)
        for y in (size * torch.randn(shape, generator=generator, dtype=torch.float64), x + 1e-3 * Vh[0].view(shape)):
            found = max(found, quotient(model, x, y))
    return found


def quotient(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        # The rounding of the two outputs is not the network's.
        a, b = model(x[None]), model(y[None])
        rounding = 1e-14 * float(a.norm() + b.norm()) * 100
        return max(0.0, (float((a - b).norm()) - rounding) / float((x - y).norm()))


def tightness(seed: int) -> float:
    """Of one network: the largest ratio that was found over the bound."""
    model, shape = network(seed)
    bounds = [on.lipschitz_bound(model, shape, constants=constants(shape)).bound]
    try:
        bounds.append(on.lipschitz_bound(model, constants=constants(None)).bound)
    except ValueError:  # a pooling whose bound needs the size
        bounds.append(math.inf)
    found = largest_ratio(in_exact_weights_(model), shape, seed)
    assert found <= min(bounds) * ROUNDING, (seed, found, bounds, model)
    return found / bounds[0] if bounds[0] else 0.0


@pytest.mark.slow
def test_no_random_network_is_above_its_bound():
    found = [tightness(seed) for seed in range(300)]
    assert max(found) > 0.999  # some attain it, so that the test would see a bound that is a little too small


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(20))
def test_no_network_of_ten_thousand_is_above_its_bound(block: int):
    found = [tightness(seed) for seed in range(1000 + 500 * block, 1500 + 500 * block)]
    print(f"largest ratio to the bound: 1 + {max(found) - 1:.1e}")
    assert max(found) > 0.999
