"""Wide residual networks on CIFAR (table 3), beside the pre-activation residual network that the paper quotes."""

from __future__ import annotations

from orthonorm_paper.records.run import Run, Scalar
from orthonorm_paper.records.schedules import Steps

from .experiment import FIVE, Experiment, nesterov_run

METHODS = ("plain", "plain-he", "WN", "OLM", "OLM-L1", "OLM-scale")
DATASETS = ("cifar10", "cifar100")


def wrn() -> list[Run]:
    """WRN-28-10 by every method, and pre-ResNet-1001 plain, on both data sets."""
    return [
        run
        for dataset in DATASETS
        for seed in FIVE
        for run in (
            *(wrn_run("wrn", dataset, method, seed) for method in METHODS),
            _preresnet("wrn", dataset, seed),
        )
    ]


def wrn_shortcuts() -> list[Run]:
    """The paper's text has every convolution orthogonal; its authors left the 1 x 1 shortcuts plain (errata 9)."""
    return [
        wrn_run("wrn-shortcuts", dataset, "OLM", seed, {"layers": "convolutions"})
        for dataset in DATASETS
        for seed in FIVE
    ]


def wrn_run(experiment: str, dataset: str, method: str, seed: int, method_args: dict[str, Scalar] | None = None) -> Run:
    """One run of WRN-28-10 as its authors have it, dropout 0.3 included."""
    return nesterov_run(
        experiment=experiment,
        dataset=dataset,
        model="wide-resnet",
        method=method,
        method_args=method_args or {},
        lr=0.1,
        schedule=Steps((60, 120, 160), 0.2),
        epochs=200,
        batch_size=128,
        seed=seed,
    )


def _preresnet(experiment: str, dataset: str, seed: int) -> Run:
    # He et al. 2016: batch 64, weight decay 1e-4; the learning rate falls at two and three quarters of the epochs, by
    # fb.resnet.torch.
    return nesterov_run(
        experiment=experiment,
        dataset=dataset,
        model="preresnet-cifar",
        model_args={"depth": 1001},
        method="plain",
        weight_decay=1e-4,
        lr=0.1,
        schedule=Steps((81, 122), 0.1),
        epochs=200,
        batch_size=64,
        seed=seed,
    )


ENTRIES = (
    Experiment(
        "wrn",
        "WRN-28-10 and pre-ResNet-1001 on CIFAR-10 and CIFAR-100",
        "CIFAR-10 and CIFAR-100, 200 epochs, batch 128 (pre-ResNet: 64), 5 seeds",
        wrn,
        shows="Table 3",
        size="full",
    ),
    Experiment(
        "wrn-shortcuts",
        "WRN-28-10 with orthogonal shortcuts too, as the paper's text has it",
        "CIFAR-10 and CIFAR-100, 200 epochs, batch 128, 5 seeds",
        wrn_shortcuts,
        shows="Table 3 (the text's variant)",
        size="full",
    ),
)
