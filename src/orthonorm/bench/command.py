"""The command `orthonorm bench`."""

from pathlib import Path

import torch

from .tables import as_markdown, write_result
from .transform import bench_transform


def bench(device: str = "cpu", rounds: int = 21, threads: int = 0, out: Path = Path("results/bench")) -> None:
    """Measure accuracy and speed of the transformation, against its floor and a loop of SVDs, in one run.

    Writes the table as Markdown and JSON. Times are medians of interleaved rounds; run it on an otherwise idle machine.
    --threads 0 leaves torch's own choice.
    """
    if threads:
        torch.set_num_threads(threads)
    result = bench_transform(device=device, rounds=rounds)
    print(as_markdown(result))
    print(f"written: {write_result(result, out)}")
