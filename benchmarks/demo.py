"""What a run of the demo takes with orthogonal weights and without, data, engine and records included."""

import importlib.util
import math
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch

from .timing import machine

__all__ = ["bench_demo"]


def bench_demo(*, device: str = "cpu", rounds: int = 3) -> dict[str, Any]:
    """Return the seconds of one run of the demo by method; nothing where the reproduction is not installed."""
    seconds = _seconds(device, min(rounds, 3)) if importlib.util.find_spec("orthonorm_paper") else {}
    rows = [
        {
            "method": method,
            "seconds": statistics.median(found),
            "times plain": statistics.median(found) / statistics.median(seconds["plain"]),
        }
        for method, found in seconds.items()
    ]
    return {"benchmark": "demo", "machine": machine(torch.device(device)), "rounds": min(rounds, 3), "rows": rows}


def _seconds(device: str, rounds: int) -> dict[str, list[float]]:
    from orthonorm_paper.experiments import experiment
    from orthonorm_paper.training.execute import execute
    from orthonorm_paper.training.settings import Settings

    first = {run.method: run for run in reversed(experiment("demo").runs())}
    seconds: dict[str, list[float]] = {method: [] for method in first}
    for _ in range(rounds):
        for method, run in first.items():
            with tempfile.TemporaryDirectory() as folder:
                record = execute(run, Path(folder), Settings(device=torch.device(device).type))  # type: ignore[arg-type]
            seconds[method].append(math.fsum(epoch.seconds or 0.0 for epoch in record.epochs))
    return seconds
