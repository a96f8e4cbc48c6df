"""The command `python -m benchmarks`."""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from .counts import bench_counts
from .demo import bench_demo
from .optim import bench_optim
from .roots import bench_roots
from .scaling import bench_scaling
from .steps import bench_steps
from .tables import as_markdown, write_result
from .targets import write_targets
from .transform import bench_peers, bench_transform

__all__ = ["SUITES", "bench", "main"]

SUITES = {
    "transform": bench_transform,
    "peers": bench_peers,
    "steps": bench_steps,
    "demo": bench_demo,
    "counts": bench_counts,
    "scaling": bench_scaling,
    "optim": bench_optim,
    "roots": bench_roots,
}


def bench(suite: str = "all", device: str = "cpu", rounds: int = 21, threads: int = 0, out: Path = Path()) -> None:
    """Measure one suite, or all, and write each one's table as Markdown and JSON.

    After all of them on a CPU, also what was asked beside what was reached.
    """
    if suite not in ("all", *SUITES):
        raise ValueError(f"suite is one of all, {', '.join(SUITES)}; got {suite!r}")
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1; got {rounds}")
    if threads:
        torch.set_num_threads(threads)
    for name in SUITES if suite == "all" else (suite,):
        result = SUITES[name](device=device, rounds=rounds)
        print(as_markdown(result))
        print(f"written: {write_result(result, out)}\n")
    if suite == "all" and torch.device(device).type == "cpu":
        page = write_targets(out)
        print(*(line for line in page.read_text().splitlines() if "**missed**" in line), sep="\n")
        print(f"written: {page}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `python -m benchmarks`; a wrong option is one line and exit code 2."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure accuracy and speed in one run, peers beside: the transformation, whole steps, operator "
        "calls, optimizers. Times are medians of interleaved rounds; run it on an otherwise idle machine.",
    )
    add = parser.add_argument
    add("--suite", default="all", help=f"all, or one of {', '.join(SUITES)} (default: %(default)s)")
    add("--device", default="cpu", help="as torch names it (default: %(default)s)")
    add("--rounds", type=int, default=21, help="how often each candidate is timed (default: %(default)s)")
    add("--threads", type=int, default=0, help="threads; 0 leaves torch's own choice (default: %(default)s)")
    add("--out", type=Path, default=Path("results/bench"), help="folder of the tables (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        bench(**vars(options))
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
