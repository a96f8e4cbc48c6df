"""A step inside a compiled function: left out of its graph, so a learning rate that changes costs nothing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

from optim.problems import OPTIMIZERS, on_manifold

pytestmark = pytest.mark.compiled


def training(name: str, rate: Any) -> tuple[Callable[[], None], Any, nn.Parameter]:
    """A function that trains a weight for one step, its optimizer, and the weight."""
    (cls, options), W = OPTIMIZERS[name], on_manifold((6, 8))
    optimizer, target = cls([W], lr=rate, **options), torch.linspace(-1, 1, 48, dtype=torch.float64).view(6, 8)

    def step() -> None:
        optimizer.zero_grad()
        (W * target).sum().backward()
        optimizer.step()

    return step, optimizer, W


def compilations() -> tuple[int, int]:
    return counters["frames"]["total"], counters["stats"]["unique_graphs"]


def by_group(optimizer: Any) -> Callable[[], None]:
    def change() -> None:
        optimizer.param_groups[0]["lr"] *= 0.9

    return change


def by_scheduler(optimizer: Any) -> Callable[[], None]:
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9).step


@pytest.mark.parametrize("kind", [float, torch.tensor], ids=["number", "tensor"])
@pytest.mark.parametrize("changes", [by_group, by_scheduler])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_case_39_a_changing_learning_rate_compiles_nothing_again(name: str, changes: Any, kind: Any):
    torch._dynamo.reset()
    counters.clear()
    eager, optimizer, expected = training(name, kind(0.1))
    change = changes(optimizer)
    for _ in range(22):
        eager()
        change()
    step, optimizer, W = training(name, kind(0.1))
    change, compiled, counts = changes(optimizer), torch.compile(step, backend="eager"), []
    for _ in range(22):
        compiled()
        change()
        counts.append(compilations())
    assert counts[1:] == [counts[1]] * 21
    torch.testing.assert_close(W.detach(), expected.detach(), rtol=0, atol=1e-12)


def test_hooks_of_a_step_run_once_and_a_closure_is_called():
    calls: list[str] = []
    step, optimizer, _ = training("sgd", 0.1)
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))

    def closure() -> float:
        calls.append("closure")
        return 1.0

    step()
    assert torch.compile(lambda: optimizer.step(closure), backend="eager")() == 1.0
    assert calls == ["before", "after", "before", "closure", "after"]
