"""Seconds of a training step and bytes kept for the backward, each way in one interleaved run."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.counts import SavedBytes
from benchmarks.timing import interleaved_medians, machine

from .problems import PROBLEMS, Problem, Task, load
from .ways import WAYS

__all__ = ["BASELINE", "measure_times"]

BASELINE = "plain, orthogonal initialization"


def measure_times(rounds: int = 11, names: list[str] | None = None) -> dict[str, Any]:
    """Return a row for each problem and way: seconds of a step, and both figures over the baseline's."""
    # Of work beside: what is measured itself would count too, once it runs.
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    rows = [row for name in names or PROBLEMS for row in _rows(name, PROBLEMS[name], load(PROBLEMS[name]), rounds)]
    return {"benchmark": "ways", "machine": machine(torch.device("cpu")), "rounds": rounds, "load": busy, "rows": rows}


def _rows(name: str, problem: Problem, task: Task, rounds: int) -> list[dict[str, Any]]:
    steps = {way: _step(problem, way, task) for way in WAYS}
    kept = {}
    for way, step in steps.items():
        with SavedBytes() as saved:
            step()
        kept[way] = saved.total
    seconds = interleaved_medians(steps, device=torch.device("cpu"), rounds=rounds, warmup=1)
    return [
        {
            "problem": name,
            "way": way,
            "seconds a step": seconds[way],
            "times baseline": seconds[way] / seconds[BASELINE],
            "bytes kept over baseline": kept[way] / kept[BASELINE],
        }
        for way in WAYS
    ]


def _step(problem: Problem, way: str, task: Task) -> Callable[[], None]:
    model = problem.make(task, 0)
    training = WAYS[way](model, problem.targets(model), 1e-3)
    x, y = task.train_x[: problem.batch_size], task.train_y[: problem.batch_size]

    def step() -> None:
        loss = nn.functional.cross_entropy(model(x), y)
        for optimizer in training.optimizers:
            optimizer.zero_grad()
        (loss if training.penalty is None else loss + training.penalty()).backward()
        for optimizer in training.optimizers:
            optimizer.step()

    return step
