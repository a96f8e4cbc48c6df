"""`NAME-synthetic`: an experiment of the paper on synthetic data, small enough to try without real data."""

from __future__ import annotations

import dataclasses

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.experiments.experiment import Experiment
from orthonorm_paper.records.run import Run, Scalar
from orthonorm_paper.records.schedules import Constant

EPOCHS = 2
# A small size of each network; the others are small enough.
SMALL: dict[str, dict[str, Scalar]] = {
    "vgg": {"width": 0.25},
    "inception-cifar": {"width": 0.125},
    "wide-resnet": {"depth": 16, "width": 1},
    "preresnet-cifar": {"depth": 11},
    "alexnet": {"width": 0.125},
    "inception-imagenet": {"width": 0.125},
}


def synthetic_of(entry: Experiment) -> Experiment:
    """The experiment on synthetic data: seed 0, two epochs at a constant learning rate, networks of ``SMALL``.

    Of ``cost`` the networks keep their size: what they cost is the question, and does not depend on the images.

    Raises:
        UserError: it is not at the paper's size, and thus runs on data that is available.
    """
    if entry.size != "full":
        raise UserError(
            f"{entry.name} has no synthetic variant: its data is available, run `orthonorm-paper run {entry.name}`"
        )
    name = f"{entry.name}-synthetic"
    networks = "networks of the paper's size" if entry.name == "cost" else "small networks"
    return Experiment(
        name,
        f"{entry.title}, on synthetic data",
        f"synthetic images, {EPOCHS} epochs, {networks}, 1 seed",
        lambda: [_run(run, name, small=entry.name != "cost") for run in entry.runs() if run.seed == 0],
        shows=entry.shows,
        rates_from=f"{entry.rates_from}-synthetic" if entry.rates_from else "",
        size="synthetic",
    )


def _run(run: Run, experiment: str, *, small: bool) -> Run:
    return dataclasses.replace(
        run,
        experiment=experiment,
        dataset=f"{_like(run.dataset)}-synthetic",
        model_args=run.model_arguments | (SMALL.get(run.model, {}) if small else {}),
        epochs=EPOCHS,
        schedule=Constant(),
    )


def _like(dataset: str) -> str:
    # A split, other statistics and other colours are the same images.
    for ending in ("-tune", "-own", "-colour"):
        dataset = dataset.removesuffix(ending)
    return dataset
