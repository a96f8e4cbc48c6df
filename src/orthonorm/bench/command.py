"""The command `orthonorm bench`."""

import sys
from pathlib import Path
from typing import NoReturn

import torch

from .counts import bench_counts
from .optim import bench_optim
from .roots import bench_roots
from .scaling import bench_scaling
from .steps import bench_steps
from .tables import as_markdown, write_result
from .targets import write_targets
from .transform import bench_peers, bench_transform

__all__ = ["SUITES", "bench"]

SUITES = {
    "transform": bench_transform,
    "peers": bench_peers,
    "steps": bench_steps,
    "counts": bench_counts,
    "scaling": bench_scaling,
    "optim": bench_optim,
    "roots": bench_roots,
}


def _refuse(message: str) -> NoReturn:
    print(f"orthonorm: {message}", file=sys.stderr)
    raise SystemExit(2)


def bench(
    suite: str = "all", device: str = "cpu", rounds: int = 21, threads: int = 0, out: Path = Path("results/bench")
) -> None:
    """Measure accuracy and speed in one run, peers beside: the transformation, whole steps, calls, optimizers.

    Writes each suite's table as Markdown and JSON and, after all of them on a CPU, what was asked beside what was
    reached. Times are medians of interleaved rounds; run it on an otherwise idle machine. --suite transform, peers,
    steps, counts, scaling, optim or roots runs one; --device is as torch names it; --rounds is how often each
    candidate is timed; --threads 0 leaves torch's own choice; --out is the folder of the tables.
    """
    if suite not in ("all", *SUITES):
        _refuse(f"suite is one of all, {', '.join(SUITES)}; got {suite!r}")
    if rounds < 1:
        _refuse(f"rounds must be at least 1; got {rounds}")
    if threads:
        torch.set_num_threads(threads)
    for name in SUITES if suite == "all" else (suite,):
        result = SUITES[name](device=device, rounds=rounds)
        print(as_markdown(result))
        print(f"written: {write_result(result, out)}\n")
    if suite == "all" and torch.device(device).type == "cpu":
        print(f"written: {write_targets(out)}")
