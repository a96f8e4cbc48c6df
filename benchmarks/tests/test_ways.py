"""The benchmark of all ways: each trains, keeps what it promises, and a record is not made twice."""

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.ways import runs
from benchmarks.ways.problems import PROBLEMS, Task
from benchmarks.ways.ways import WAYS

FREE = {"plain, orthogonal initialization", "plain, He initialization", "soft penalty", "Landing"}


def tiny(problem: str) -> Task:
    """A few random images of the data set's shape."""
    generator = torch.Generator().manual_seed(0)
    shape = (24, 3 if problem == "vgg-5k" else 1, 32, 32)
    x, y = torch.randn(shape, generator=generator), torch.arange(24) % 10
    return Task(x, y, x, y, 10)


# Exponential maps of whole matrices take seconds each where the matrices are large.
PAIRS = [
    pytest.param(way, problem, marks=[pytest.mark.nightly] if exponential and problem != "rows-5k" else [])
    for way in WAYS
    for exponential in [way in {"torch matrix_exp", "geotorch"}]
    for problem in PROBLEMS
]


@pytest.mark.parametrize(("way", "problem"), PAIRS)
def test_every_way_trains_every_problem(way: str, problem: str):
    short = PROBLEMS[problem]._replace(epochs=2, batch_size=12)
    lines = runs.train(runs.Run(problem, way, 0.01, 0), short, tiny(problem))
    assert len(lines) == 2
    assert lines[0]["train_loss"] != lines[1]["train_loss"]
    if way not in FREE:
        assert lines[-1]["orthogonality_error"] < 1e-4


@pytest.mark.parametrize("way", WAYS)
def test_every_way_steps_every_parameter(way: str):
    problem = PROBLEMS["rows-5k"]
    model = problem.make(tiny("rows-5k"), 0)
    training = WAYS[way](model, problem.targets(model), 0.01)
    stepped = {id(p) for optimizer in training.optimizers for group in optimizer.param_groups for p in group["params"]}
    assert stepped == {id(p) for p in model.parameters()}


def test_a_record_is_read_and_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[runs.Run] = []

    def train(run: runs.Run, *_: Any) -> list[dict[str, float]]:
        made.append(run)
        return [{"train_loss": 0.5}]

    monkeypatch.setattr(runs, "train", train)
    run = runs.Run("mlp8", "OLM", 0.1, 0)
    first = runs.finish(run, tmp_path, tiny("mlp8"))
    assert runs.finish(run, tmp_path, tiny("mlp8")) == first
    assert made == [run]


def test_rates_are_widened_until_the_best_is_inside():
    def records(losses: dict[float, float]) -> list[dict[str, Any]]:
        return [
            {"lr": lr, "seed": seed, "epochs": [{"train_loss": loss}]}
            for lr, loss in losses.items()
            for seed in runs.SEEDS
        ]

    losses = {0.01: 0.4, 0.03: 0.3, 0.1: 0.2, 0.3: 0.1}
    assert len(runs.next_runs("mlp8", "OLM", [])) == len(runs.RATES) * len(runs.SEEDS)
    assert {run.lr for run in runs.next_runs("mlp8", "OLM", records(losses))} == {0.9}
    assert {run.lr for run in runs.next_runs("mlp8", "OLM", records({**losses, 0.01: 0.01}))} == {0.003}
    assert runs.next_runs("mlp8", "OLM", records({**losses, 0.9: float("nan")})) == []
