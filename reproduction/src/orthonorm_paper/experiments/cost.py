"""Seconds per iteration of the VGG-style network and of WRN-28-10: short runs, whose epochs are timed."""

from __future__ import annotations

import dataclasses

from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import Constant

from .experiment import Experiment
from .vgg import vgg_run
from .wrn import wrn_run

# The first epoch carries what is done once, such as the choice of kernels.
EPOCHS = 3


def cost() -> list[Run]:
    """Batch 256 and 128 on CIFAR-10, at the paper's size."""
    runs = [
        *(vgg_run("cost", "cifar10", method, 0.05, 0) for method in ("plain", "WN", "OLM")),
        *(wrn_run("cost", "cifar10", method, 0) for method in ("plain", "WN", "OLM", "OLM-L1")),
    ]
    return [dataclasses.replace(run, epochs=EPOCHS, schedule=Constant()) for run in runs]


ENTRIES = (
    Experiment(
        "cost",
        "Seconds per iteration of VGG and WRN-28-10",
        "CIFAR-10, 3 epochs, batch 256 and 128, 1 seed; run alone on its device (--jobs 1)",
        cost,
        shows="Computation cost (text)",
        size="full",
    ),
)
