"""The VGG-style network on CIFAR (table 1, figure 5), and the learning rates it takes."""

from __future__ import annotations

from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import Exponential

from .experiment import FIVE, Experiment, nesterov_run

RATES = (0.01, 0.05, 0.1)
METHODS = ("plain", "plain-he", "plain-orthogonal", "WN", "WN-unit", "OLM-L2", "OLM-L4", "OLM", "OLM-scale")


def vgg() -> list[Run]:
    """Every method on both data sets, at every learning rate."""
    return [
        vgg_run("vgg", dataset, method, lr, seed)
        for dataset in ("cifar10", "cifar100")
        for seed in FIVE
        for method in METHODS
        for lr in RATES
    ]


def tune() -> list[Run]:
    """The same once, on the splits that choose the learning rates."""
    return [
        vgg_run("vgg-tune", dataset, method, lr, 0)
        for dataset in ("cifar10-tune", "cifar100-tune")
        for method in METHODS
        for lr in RATES
    ]


def vgg_run(experiment: str, dataset: str, method: str, lr: float, seed: int) -> Run:
    """One run as the paper has it."""
    return nesterov_run(
        experiment=experiment,
        dataset=dataset,
        model="vgg",
        method=method,
        lr=lr,
        schedule=Exponential(0.01, 100, every=2),
        epochs=100,
        batch_size=256,
        seed=seed,
    )


ENTRIES = (
    Experiment(
        "vgg-tune",
        "Learning rates of the VGG-style network",
        "5,000 of CIFAR's 50,000 training images held out, 100 epochs, batch 256, 1 seed",
        tune,
        shows="Table 1 (learning rates)",
        size="full",
    ),
    Experiment(
        "vgg",
        "VGG-style network on CIFAR-10 and CIFAR-100",
        "CIFAR-10 and CIFAR-100, 100 epochs, batch 256, learning rate from vgg-tune, 5 seeds",
        vgg,
        shows="Table 1, Figure 5",
        rates_from="vgg-tune",
        size="full",
    ),
)
