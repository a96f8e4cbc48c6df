"""The first twenty steps of every method on every network, as numbers that a later version must reproduce.

    python reproduction/tests/paper_support/golden_curves.py write      # compute them again, and how far others are
    python reproduction/tests/paper_support/golden_curves.py measure    # print how far they are, and write nothing

The files in `golden/` say what a version computed, not what is right: after a change that is meant to change numbers,
write them again and say in the commit why they moved. The data are tiny files of random pixels (synthetic) and some
of the 5,000 real digits; ImageNet's networks, which read folders of images, are not among them. They are in float64,
and batch normalisation of seven samples trains at a low rate: else twenty steps carry one rounding to the first digit.
"""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

HERE = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.insert(0, str(HERE))

from orthonorm_paper.records.run import Run  # noqa: E402
from orthonorm_paper.training.execute import Settings, execute  # noqa: E402
from paper_support import tiny_files  # noqa: E402
from paper_support.smoke import NAMES, smoke  # noqa: E402

FILE = HERE / "experiments/golden/curves.json"
EPOCHS = 10  # of two steps each
CALM = {"inception-cifar": 1e-3, "wide-resnet": 1e-3, "preresnet-cifar": 1e-3}

# How the same numbers are computed elsewhere: other instruction sets, other kernels, more threads.
ELSEWHERE = {
    "two threads": {"OMP_NUM_THREADS": "2"},
    "torch without AVX": {"ATEN_CPU_CAPABILITY": "default"},
    "torch with AVX2 only": {"ATEN_CPU_CAPABILITY": "avx2"},
    "oneDNN with SSE4.1 only": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "oneDNN with AVX2 only": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
    "MKL's compatible kernels": {"MKL_CBWR": "COMPATIBLE"},
    "MKL with AVX2 only": {"MKL_CBWR": "AVX2"},
}

Curves = dict[str, list[float]]


def read() -> dict[str, dict[str, Any]]:
    """Return the committed losses of each curve, and the largest distance that was measured elsewhere."""
    return json.loads(FILE.read_text())["curves"]


def golden_runs() -> dict[str, Run]:
    """Return a run of twenty steps for every network, method and optimizer of the experiments, by name."""
    runs: dict[str, Run] = {}
    for experiment in NAMES:
        for run in smoke(experiment):
            arguments = "".join(f", {key} {value}" for key, value in run.method_args)  # type: ignore[misc]
            name = f"{run.model}, {run.method}{arguments}, {run.optimizer}"
            changes = {"lr": min(run.lr, CALM.get(run.model, run.lr)), "epochs": EPOCHS, "precision": "64-true"}
            # What torch drops is drawn in another way since its version 2.6.
            changes["model_args"] = run.model_arguments | ({"dropout": 0.0} if run.model == "wide-resnet" else {})
            runs.setdefault(name, dataclasses.replace(run, **changes))
    return runs


def curve(run: Run, folder: Path, files: Path) -> list[float]:
    """Return the training loss after each two steps, and the test loss at the end, in six digits."""
    record = execute(run, folder, Settings(device="cpu", data=files))
    losses = [epoch.train_loss for epoch in record.epochs] + [record.epochs[-1].test_loss]
    return [float(f"{loss:.6g}") for loss in losses]


def golden_files(folder: Path) -> Iterator[Path]:
    """Yield a folder with the tiny data sets, the same ones in every process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_files, "RANDOM", np.random.default_rng(0))
        yield tiny_files.write_files(folder, patch)


def distances(curves: Curves, others: Curves) -> dict[str, float]:
    """Return the largest difference of each curve, relative to the loss."""
    return {
        name: max(abs(a - b) / max(abs(a), 1e-2) for a, b in zip(losses, others[name], strict=True))
        for name, losses in curves.items()
    }


def compute() -> Curves:
    """Return every curve as this process computes it."""
    with tempfile.TemporaryDirectory() as folder:
        for files in golden_files(Path(folder)):
            return {name: curve(run, Path(folder) / "runs", files) for name, run in golden_runs().items()}
    raise AssertionError("there were no files")


def _compute_elsewhere(settings: dict[str, str]) -> Curves:
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | settings
    command = [sys.executable, "-W", "ignore", __file__, "compute"]
    found = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=600)
    return json.loads(found.stdout.splitlines()[-1])


def main(what: str) -> None:
    """Compute, measure or write."""
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    if what == "compute":
        print(json.dumps(compute()))
        return
    curves = _compute_elsewhere({}) if what == "write" else {name: row["losses"] for name, row in read().items()}
    largest = dict.fromkeys(curves, 0.0)
    for name, settings in ELSEWHERE.items():
        found = distances(curves, _compute_elsewhere(settings))
        worst = max(found, key=found.__getitem__)
        print(f"{name}: {found[worst]:.1e} ({worst})")
        largest = {curve: max(largest[curve], found[curve]) for curve in curves}
    if what == "write":
        head = {"torch": torch.__version__, "steps": 2 * EPOCHS, "elsewhere": list(ELSEWHERE)}
        rows = {name: {"losses": losses, "distance": float(f"{largest[name]:.1e}")} for name, losses in curves.items()}
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(row)}" for name, row in rows.items())
        FILE.write_text(json.dumps(head, indent=1)[:-2] + ',\n "curves": {\n' + lines + "\n }\n}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("compute", "measure", "write"):
        raise SystemExit(__doc__)
    main(sys.argv[1])
