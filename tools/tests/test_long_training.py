"""What twenty thousand steps showed (docs/long-training.md), in few."""

import json
import math
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import nn

import orthonorm as on
from long_training import CASES, Point, table, train

FOLDER = Path(__file__).parents[2] / "docs/long-training"


def committed() -> dict[str, list[Point]]:
    found = json.loads((FOLDER / "curves.json").read_text())
    assert found["columns"] == [field.name for field in fields(Point)]
    return {
        name: [Point(int(step), *(math.nan if value is None else value for value in row)) for step, *row in rows]
        for name, rows in found["curves"].items()
    }


@pytest.mark.parametrize("name", CASES)
def test_a_network_learns_and_stays_orthogonal(name: str):
    points = train(CASES[name], 100)
    assert points[-1].loss < 0.7 * points[1].loss
    assert max(point.error for point in points) < 1e-5
    assert max(point.condition for point in points) < 1e3


def test_the_committed_curves_are_those_of_the_page():
    curves = committed()
    assert list(curves) == list(CASES)
    page = (FOLDER.parent / "long-training.md").read_text()
    assert table(curves) in page
    for points in curves.values():
        assert points[-1].step == 20_000
        assert max(point.error for point in points) < 1e-5
        assert all(math.isfinite(value) for point in points[1:] for value in vars(point).values())


def test_without_decay_the_norm_only_grows():
    # <dL/dV, V> = 0: each step of plain SGD goes sideways, so |V|^2 grows by the square of the step.
    points = train(CASES["SGD at a learning rate of 1.2 (at 2 it learns nothing)"], 50)
    norms = [point.smallest for point in points]
    assert norms == sorted(norms)


@pytest.mark.parametrize("every", [None, 50])
def test_what_decay_alone_makes_of_v_is_undone_by_recentring(every: int | None):
    # A layer without a gradient only shrinks: at 0.9 a step it has left the range of float32 after 900 steps.
    torch.manual_seed(0)
    layer = on.OrthogonalLinear(12, 8, bias=False)
    W = layer.weight.detach().clone()
    (V,) = layer.parameters()
    optimizer = torch.optim.SGD([V], lr=1.0, weight_decay=0.1)
    for step in range(1, 1001):
        V.grad = torch.zeros_like(V)
        optimizer.step()
        if every and step % every == 0:
            on.renormalize_(nn.Sequential(layer), norm=1.0)
    lost = not torch.allclose(layer.weight, W, atol=1e-5)
    assert lost is (every is None)
