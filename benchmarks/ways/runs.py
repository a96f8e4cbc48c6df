"""One run from its description to its record, and the learning rates that are to be run."""

import json
import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from orthonorm.functional._orthogonality import orthogonality_errors

from .problems import PROBLEMS, Problem, Target, Task
from .ways import WAYS, matrix

__all__ = ["RATES", "SCANNED", "SEEDS", "Run", "finish", "next_runs", "train"]

SEEDS = (0, 1, 2, 3, 4)
RATES = tuple(float(f"{digit}e{power}") for power in range(-5, 3) for digit in (1, 3))
SCANNED = (0.01, 0.03, 0.1, 0.3)
_DIVERGED: dict[str, float] = dict.fromkeys(("train_loss", "seconds", "test_error", "orthogonality_error"), math.inf)


@dataclass(frozen=True)
class Run:
    """What decides a result."""

    problem: str
    way: str
    lr: float
    seed: int

    def path(self, out: Path) -> Path:
        """Where its record is."""
        return out / self.problem / f"{self.way.replace(' ', '-').replace(',', '')}-lr{self.lr:g}-s{self.seed}.json"


def finish(run: Run, out: Path, task: Task) -> dict[str, Any]:
    """Return the record of a run; train it where there is none. A record is complete or not there."""
    path = run.path(out)
    if path.is_file():
        return json.loads(path.read_text())
    record = {**asdict(run), "epochs": train(run, PROBLEMS[run.problem], task)}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(record))
    part.replace(path)
    return record


def train(run: Run, problem: Problem, task: Task) -> list[dict[str, float]]:
    """Train and return a line an epoch; a loss that is not finite ends it."""
    torch.manual_seed(run.seed)
    model = problem.make(task, run.seed)
    targets = problem.targets(model)
    training = WAYS[run.way](model, targets, run.lr)
    total, lines = problem.epochs * math.ceil(len(task.train_y) / problem.batch_size), []
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total) for optimizer in training.optimizers]
    order = torch.Generator().manual_seed(run.seed)
    for _ in range(problem.epochs):
        start, losses = time.perf_counter(), []
        for rows in torch.randperm(len(task.train_y), generator=order).split(problem.batch_size):
            loss = nn.functional.cross_entropy(model(task.train_x[rows]), task.train_y[rows])
            losses.append(loss.item())
            if not math.isfinite(losses[-1]):
                return [*lines, _DIVERGED]
            for optimizer in training.optimizers:
                optimizer.zero_grad()
            (loss if training.penalty is None else loss + training.penalty()).backward()
            for stepping in (*training.optimizers, *schedules):
                stepping.step()
        seconds = time.perf_counter() - start
        lines.append(
            {
                "train_loss": sum(losses) / len(losses),
                "seconds": seconds,
                **_measure(model, targets, task, training.scale),
            }
        )
    return lines


@torch.no_grad()
def _measure(model: nn.Module, targets: list[Target], task: Task, scale: float) -> dict[str, float]:
    model.eval()
    wrong = sum(
        (model(x).argmax(1) != y).sum().item()
        for x, y in zip(task.test_x.split(500), task.test_y.split(500), strict=True)
    )
    model.train()
    weights: list[Tensor] = [getattr(module, name) for module, name in targets]
    worst = max(orthogonality_errors(matrix(weight) / scale).max().item() for weight in weights)
    return {"test_error": 100 * wrong / len(task.test_y), "orthogonality_error": worst}


def next_runs(problem: str, way: str, records: Iterable[Mapping[str, Any]]) -> list[Run]:
    """The runs that are missing next, until the best learning rate has neighbours, all with five seeds.

    First one seed runs at ``SCANNED``, and beside the best of them until it lies between two others. Then all seeds run
    at the best and its two neighbours in ``RATES``; where a neighbour turns out better, its other neighbour runs too.
    The best has the lowest mean training loss of the last epoch.
    """
    losses: dict[float, dict[int, float]] = {}
    for record in records:
        loss = record["epochs"][-1]["train_loss"]
        losses.setdefault(record["lr"], {})[record["seed"]] = loss if math.isfinite(loss) else math.inf
    if scan := [Run(problem, way, lr, SEEDS[0]) for lr in SCANNED if SEEDS[0] not in losses.get(lr, {})]:
        return scan
    whole = {lr: sum(found.values()) for lr, found in losses.items() if len(found) == len(SEEDS)}
    first = {lr: found[SEEDS[0]] for lr, found in losses.items() if SEEDS[0] in found}
    known = whole or first
    place = RATES.index(min(known, key=known.__getitem__))
    near = RATES[max(place - 1, 0) : place + 2]
    if not whole and (scan := [Run(problem, way, lr, SEEDS[0]) for lr in near if lr not in first]):
        return scan
    return [Run(problem, way, lr, seed) for lr in near for seed in SEEDS if seed not in losses.get(lr, {})]
