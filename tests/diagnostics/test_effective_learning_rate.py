"""What |V| means for the speed of W under torch's optimizers, by the polar factor of V from LAPACK."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from orthogonal_layers import free, polar

Make = Callable[..., torch.optim.Optimizer]

# The power of |V| that the learning rate of W is divided by.
OPTIMIZERS: dict[str, tuple[Make, int, float]] = {
    "SGD": (torch.optim.SGD, 2, 1e-2),
    "momentum": (partial(torch.optim.SGD, momentum=0.9), 2, 1e-2),
    "Nesterov": (partial(torch.optim.SGD, momentum=0.9, nesterov=True), 2, 1e-2),
    "SGD with decay": (partial(torch.optim.SGD, weight_decay=1e-3), 2, 1e-2),
    "Adam": (partial(torch.optim.Adam, eps=1e-15), 1, 1e-4),
    "AdamW": (partial(torch.optim.AdamW, eps=1e-15), 1, 1e-4),
}


def trajectory(make: Make, lr: float, size: float, steps: int = 5) -> list[Tensor]:
    """W after each step, where V starts with rows of norm `size`, in one problem of least squares."""
    generator = torch.Generator().manual_seed(0)
    start, x, y = (
        torch.randn(shape, dtype=torch.float64, generator=generator) for shape in ((16, 32), (64, 32), (64, 16))
    )
    layer = on.orthogonal_weight_norm(nn.Linear(32, 16, bias=False, dtype=torch.float64), center=False)
    with torch.no_grad():
        free(layer).copy_(size * start / start.norm(dim=1, keepdim=True))
    optimizer, found = make([free(layer)], lr=lr), [polar(free(layer), center=False)]
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(layer(x), y).backward()
        optimizer.step()
        found.append(polar(free(layer), center=False))
    return found


def movement(found: list[Tensor]) -> float:
    """How far W moves in a step, on average."""
    return sum(float((b - a).norm()) for a, b in pairwise(found)) / (len(found) - 1)


@pytest.mark.parametrize(("make", "power", "lr"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_case_32_w_moves_by_the_learning_rate_over_a_power_of_the_norm(make: Make, power: int, lr: float):
    moved = [movement(trajectory(make, lr, size)) for size in (1.0, 5.0, 25.0)]
    assert moved[0] / moved[1] == pytest.approx(5.0**power, rel=0.05)
    assert moved[1] / moved[2] == pytest.approx(5.0**power, rel=0.05)


@pytest.mark.parametrize(
    ("make", "power", "lr"),
    [entry for name, entry in OPTIMIZERS.items() if name not in ("SGD with decay", "AdamW")]
    + [(partial(torch.optim.AdamW, eps=1e-15, weight_decay=0.0), 1, 1e-4)],
)
def test_a_learning_rate_times_that_power_gives_the_same_weights(make: Make, power: int, lr: float):
    one, other = trajectory(make, 100 * lr, 1.0), trajectory(make, 100 * lr * 25.0**power, 25.0)
    assert movement(one) > 1e-2
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "turns"),
    [(torch.optim.SGD, False), (torch.optim.AdamW, False), (torch.optim.Adam, True)],
    ids=["SGD", "AdamW", "Adam"],
)
def test_weight_decay_on_v_turns_w_only_where_adam_takes_it_for_a_gradient(make: Any, turns: bool):
    layer = on.orthogonal_weight_norm(nn.Linear(32, 16, bias=False, dtype=torch.float64), center=False)
    before, size = polar(free(layer), center=False), free(layer).detach().norm()
    optimizer = make([free(layer)], lr=1e-2, weight_decay=0.1)
    free(layer).grad = torch.zeros_like(free(layer))
    for _ in range(5):
        optimizer.step()
    assert free(layer).detach().norm() < size
    assert (float((polar(free(layer), center=False) - before).norm()) > 1e-2) is turns
    assert turns or torch.dist(polar(free(layer), center=False), before) < 1e-12
