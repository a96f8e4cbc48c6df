"""Kill a sweep, and one longer run, with `kill -9` at random moments, 20 times each, and compare the records.

    python tools/kill_runs.py [SEED]

The processes are forked from this one, which has imported everything. Exit code 1 if a record differs from that of
the same run undisturbed, or if a half-written file was ever taken for a record.
"""

import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "reproduction/tests"))

from orthonorm_paper import data
from orthonorm_paper.records.files import same
from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.run import Run
from orthonorm_paper.training.settings import Settings
from orthonorm_paper.training.sweep import sweep
from paper_support.tiny_data import synthetic

KILLS = 20
SETTINGS = Settings(device="cpu", checkpoint_seconds=0.0)


def runs(count: int, epochs: int) -> list[Run]:
    """Runs of OLM with dropout on synthetic patterns."""
    return [
        Run(
            experiment="tests",
            dataset="tiny",
            model="mlp",
            model_args={"hidden_layers": 2, "width": 12, "dropout": 0.3},
            method="OLM",
            momentum=0.9,
            lr=0.1,
            epochs=epochs,
            batch_size=16,
            seed=seed,
        )
        for seed in range(count)
    ]


def killed(wanted: Sequence[Run], folder: Path, moments: random.Random) -> tuple[int, int]:
    """Start the runs again and again, and kill each start; how many kills there were, and records at most half way."""
    kills = seen = 0
    while kills < KILLS:
        child = os.fork()
        if child == 0:
            sweep(wanted, folder, SETTINGS)
            os._exit(0)
        time.sleep(moments.uniform(0.02, 0.5))
        done, _ = os.waitpid(child, os.WNOHANG)
        if done:
            break
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        kills += 1
        # Raises for a file that is no whole record.
        seen = len(read_folder(folder))
    return kills, seen


def main(words: Sequence[str]) -> int:
    torch.set_num_threads(1)
    data.DATASETS["tiny"] = synthetic
    moments = random.Random(int(words[0]) if words else 0)
    failed = False
    for name, wanted in (("sweep of 8 runs", runs(8, 40)), ("one run", runs(1, 400))):
        with tempfile.TemporaryDirectory() as text:
            cut, whole = Path(text) / "cut", Path(text) / "whole"
            kills, seen = killed(wanted, cut, moments)
            ended = sweep(wanted, cut, SETTINGS)
            expected = sweep(wanted, whole, SETTINGS)
            equal = sum(map(same, ended, expected))
            resumed = sum(record.end.resumed for record in ended)
            left = [path.name for path in cut.rglob("*") if path.is_file() and path.suffix not in (".lock", ".jsonl")]
        print(
            f"{name}: killed {kills} times ({seen} recorded by then), continued {resumed} times from a checkpoint: "
            f"{equal} of {len(expected)} records equal, {len(left)} files left over",
            flush=True,
        )
        failed |= kills < KILLS or equal < len(expected) or bool(left)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
