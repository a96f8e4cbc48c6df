"""What an experiment is: a name, where the paper has it, and its runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from orthonorm_paper.records.run import Run

# A comparison takes five seeds: under no effect all five agree with a probability of 1/32.
FIVE = (0, 1, 2, 3, 4)
DIGITS = "5,000 real MNIST digits (4,000 to train)"

# A run as the authors train on CIFAR: its momentum starts again from zero when the learning rate changes.
nesterov_run = partial(Run, momentum=0.9, nesterov=True, weight_decay=5e-4, restart_momentum=True, augment="flip-crop")


@dataclass(frozen=True)
class Experiment:
    """A named list of runs.

    Attributes:
        name: as the command line takes it; also the folder of its results.
        title: one line.
        budget: data set, epochs and seeds in words, printed beside every figure.
        runs: gives the runs; with ``rates_from`` those at every learning rate that may be chosen.
        shows: tables and figures of the paper; empty for what the paper has not.
        rates_from: the experiment on a validation split that chooses the learning rate of each run.
        size: "full" at the paper's size, "reduced" at another one, "synthetic" on synthetic data.
    """

    name: str
    title: str
    budget: str
    runs: Callable[[], list[Run]]
    shows: str = ""
    rates_from: str = ""
    size: str = "reduced"
