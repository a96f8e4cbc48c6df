"""Wide residual networks on CIFAR (table 3), beside the pre-activation residual network that the paper quotes."""

from __future__ import annotations

from orthonorm_paper.records.run import Run, Scalar
from orthonorm_paper.records.schedules import Schedule, Steps

from .experiment import Experiment

METHODS = ("plain", "plain-he", "WN", "OLM", "OLM-L1", "OLM-scale")
DATASETS = ("cifar10", "cifar100")
SEEDS = (0, 1, 2, 3, 4)


def wrn() -> list[Run]:
    """WRN-28-10 by every method, and pre-ResNet-1001 plain, on both data sets."""
    return [
        run
        for dataset in DATASETS
        for seed in SEEDS
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
        for seed in SEEDS
    ]


def wrn_run(
    experiment: str,
    dataset: str,
    method: str,
    seed: int,
    method_args: dict[str, Scalar] | None = None,
    *,
    epochs: int = 200,
) -> Run:
    """One run of WRN-28-10 as its authors have it, dropout 0.3 included."""
    schedule = Steps((60, 120, 160), 0.2)
    return _run(experiment, dataset, "wide-resnet", {}, method, method_args, schedule, epochs, 128, 5e-4, seed)


def _preresnet(experiment: str, dataset: str, seed: int) -> Run:
    # He et al. 2016: batch 64, decay 1e-4; the rate falls at two and three quarters of the epochs, by fb.resnet.torch.
    arguments: dict[str, Scalar] = {"depth": 1001}
    schedule = Steps((81, 122), 0.1)
    return _run(experiment, dataset, "preresnet-cifar", arguments, "plain", None, schedule, 200, 64, 1e-4, seed)


def _run(
    experiment: str,
    dataset: str,
    model: str,
    model_args: dict[str, Scalar],
    method: str,
    method_args: dict[str, Scalar] | None,
    schedule: Schedule,
    epochs: int,
    batch_size: int,
    weight_decay: float,
    seed: int,
) -> Run:
    return Run(
        experiment=experiment,
        dataset=dataset,
        model=model,
        model_args=model_args,
        method=method,
        method_args=method_args or {},
        momentum=0.9,
        nesterov=True,
        weight_decay=weight_decay,
        restart_momentum=True,
        lr=0.1,
        schedule=schedule,
        epochs=epochs,
        batch_size=batch_size,
        augment="flip-crop",
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
