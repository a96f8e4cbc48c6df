"""BN-Inception on CIFAR (table 2, figure 6)."""

from __future__ import annotations

from orthonorm_paper.records.run import Run, Scalar
from orthonorm_paper.records.schedules import Exponential

from .experiment import FIVE, Experiment, nesterov_run

METHODS = ("plain", "plain-he", "WN", "WN-unit", "OLM")


def inception() -> list[Run]:
    """Every method on both data sets; the learning rate is the paper's for all, from 0.1 to 0.001."""
    return _runs("inception", ("cifar10", "cifar100"), METHODS)


def cited_order() -> list[Run]:
    """The network as the cited implementation and the released code have it: ReLU, normalisation, ReLU."""
    return _runs("inception-cited-order", ("cifar10", "cifar100"), ("plain", "WN", "OLM"), {"relu_before_norm": True})


def own_statistics() -> list[Run]:
    """CIFAR-100 normalised by its own mean and standard deviation, where the released code has CIFAR-10's."""
    return _runs("inception-own-statistics", ("cifar100-own",), ("plain", "WN", "OLM"))


def _runs(
    name: str, datasets: tuple[str, ...], methods: tuple[str, ...], model_args: dict[str, Scalar] | None = None
) -> list[Run]:
    return [
        nesterov_run(
            experiment=name,
            dataset=dataset,
            model="inception-cifar",
            model_args=model_args or {},
            method=method,
            lr=0.1,
            schedule=Exponential(0.01, 100, every=2),
            epochs=100,
            batch_size=64,
            seed=seed,
        )
        for dataset in datasets
        for seed in FIVE
        for method in methods
    ]


ENTRIES = (
    Experiment(
        "inception",
        "BN-Inception on CIFAR-10 and CIFAR-100",
        "CIFAR-10 and CIFAR-100, 100 epochs, batch 64, learning rate 0.1 to 0.001, 5 seeds",
        inception,
        shows="Table 2, Figure 6",
        size="full",
    ),
    Experiment(
        "inception-cited-order",
        "BN-Inception with a ReLU on both sides of the normalisation",
        "CIFAR-10 and CIFAR-100, 100 epochs, batch 64, learning rate 0.1 to 0.001, 5 seeds",
        cited_order,
        shows="Table 2 (the cited order)",
        size="full",
    ),
    Experiment(
        "inception-own-statistics",
        "BN-Inception on CIFAR-100 normalised by its own statistics",
        "CIFAR-100, 100 epochs, batch 64, learning rate 0.1 to 0.001, 5 seeds",
        own_statistics,
        shows="Table 2 (CIFAR-100's statistics)",
        size="full",
    ),
)
