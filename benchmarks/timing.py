"""Interleaved timing: every candidate once a round, medians over the rounds, ratios within the run."""

import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

__all__ = ["interleaved_medians", "machine", "product_rate"]


def interleaved_medians(
    candidates: Mapping[str, Callable[[], object]], *, device: torch.device, rounds: int = 21, warmup: int = 2
) -> dict[str, float]:
    """Return the median seconds of each candidate, all of them timed once a round so that drift hits all alike.

    A candidate pays for what ran before it (cold caches, threads that wake up, memory to be had again): a millisecond
    after a large product, more after a peer that takes a second. So each is run once more right before it is timed,
    and each round has an order of its own, the same in every run of the benchmark. On CUDA the device's events time.
    """
    times: dict[str, list[float]] = {name: [] for name in candidates}
    orders = random.Random(0)
    for round_ in range(warmup + rounds):
        for name in orders.sample(list(candidates), len(candidates)):
            candidates[name]()
            elapsed = _seconds(candidates[name], device)
            if round_ >= warmup:
                times[name].append(elapsed)
    return {name: statistics.median(values) for name, values in times.items()}


def _seconds(run: Callable[[], object], device: torch.device) -> float:
    """Return how long a run takes, by the device's own events where it is CUDA."""
    if device.type != "cuda":
        start = time.perf_counter()
        run()
        return time.perf_counter() - start
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = torch.cuda.current_stream(device)
    start.record(stream)
    run()
    end.record(stream)
    end.synchronize()
    return start.elapsed_time(end) / 1e3


def product_rate(device: torch.device) -> tuple[Callable[[], object], float]:
    """Return a float32 product of two 2048 x 2048 matrices and its number of operations: the measure of the floor."""
    a, b = (torch.randn(2048, 2048, device=device) for _ in range(2))
    return (lambda: a @ b), 2 * 2048.0**3


def machine(device: torch.device) -> dict[str, str | int]:
    """Return what a reader must know to judge a time: processor, threads, versions."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {"device": name, "threads": torch.get_num_threads(), "torch": torch.__version__, "system": platform.system()}


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        if names:
            return names[0]
    return platform.processor() or platform.machine()
