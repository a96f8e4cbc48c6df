"""BN-Inception on CIFAR (table 2, figure 6)."""

from __future__ import annotations

from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import Exponential

from .experiment import Experiment

METHODS = ("plain", "plain-he", "WN", "WN-unit", "OLM")
SEEDS = (0, 1, 2, 3, 4)


def inception() -> list[Run]:
    """Every method on both data sets; the rate is the paper's for all, from 0.1 to 0.001."""
    return [
        Run(
            experiment="inception",
            dataset=dataset,
            model="inception-cifar",
            method=method,
            momentum=0.9,
            nesterov=True,
            weight_decay=5e-4,
            restart_momentum=True,
            lr=0.1,
            schedule=Exponential(0.01, 100, every=2),
            epochs=100,
            batch_size=64,
            augment="flip-crop",
            seed=seed,
        )
        for dataset in ("cifar10", "cifar100")
        for seed in SEEDS
        for method in METHODS
    ]


ENTRIES = (
    Experiment(
        "inception",
        "BN-Inception on CIFAR-10 and CIFAR-100",
        "CIFAR-10 and CIFAR-100, 100 epochs, batch 64, rate 0.1 to 0.001, 5 seeds",
        inception,
        shows="Table 2, Figure 6",
        size="full",
    ),
)
