"""The paper's networks, narrow, on 5,000 real digits: small enough for two cores."""

from __future__ import annotations

from orthonorm_paper.records.run import Run, Scalar
from orthonorm_paper.records.schedules import Exponential

from .experiment import DIGITS, FIVE, Experiment, nesterov_run
from .pie import GROUPS

# So wide that no best learning rate is at an edge.
PIE_RATES = (0.05, 0.1, 0.5, 1.0, 2.0, 4.0)
VGG_RATES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
WRN_RATES = (0.05, 0.1, 0.2, 0.5, 1.0)
INCEPTION_RATES = (0.05, 0.1, 0.2, 0.5, 1.0)


def pie_5k() -> list[Run]:
    """The MLP of PIE on digits: the group sizes of figure 3."""
    return [
        Run(
            experiment="pie-5k",
            dataset="mnist-5k",
            model="pie-mlp",
            method=method,
            method_args=arguments,
            lr=lr,
            epochs=12,
            batch_size=64,
            seed=seed,
        )
        for seed in FIVE
        for method, arguments in GROUPS
        for lr in PIE_RATES
    ]


def vgg_5k() -> list[Run]:
    """VGG at a quarter of its width."""
    methods = ("plain", "plain-he", "plain-orthogonal", "WN", "OLM-L2", "OLM-L4", "OLM", "OLM-scale")
    return _runs("vgg-5k", "vgg", {"width": 0.25}, methods, VGG_RATES, epochs=5)


def inception_5k() -> list[Run]:
    """BN-Inception at a sixteenth of its width."""
    methods = ("plain", "WN", "OLM")
    return _runs("inception-5k", "inception-cifar", {"width": 0.0625}, methods, INCEPTION_RATES, epochs=3)


def wrn_5k() -> list[Run]:
    """WRN-16-2 without dropout."""
    arguments: dict[str, Scalar] = {"depth": 16, "width": 2, "dropout": 0.0}
    methods = ("plain", "WN", "OLM", "OLM-L1", "OLM-scale")
    return _runs("wrn-5k", "wide-resnet", arguments, methods, WRN_RATES, epochs=2)


def _runs(
    experiment: str,
    model: str,
    model_args: dict[str, Scalar],
    methods: tuple[str, ...],
    rates: tuple[float, ...],
    *,
    epochs: int,
) -> list[Run]:
    return [
        small_run(experiment, model, model_args, method, lr, seed, epochs=epochs)
        for seed in FIVE
        for method in methods
        for lr in rates
    ]


def small_run(
    experiment: str,
    model: str,
    model_args: dict[str, Scalar],
    method: str,
    lr: float,
    seed: int,
    *,
    epochs: int,
    method_args: dict[str, Scalar] | None = None,
) -> Run:
    """As the paper trains its convolutional networks, but in small batches, on whole images, and in a few epochs.

    Digits are not mirrored, and a few hundred steps do not suffice for crops of them.
    """
    return nesterov_run(
        experiment=experiment,
        dataset="mnist-5k-rgb",
        model=model,
        model_args=model_args,
        method=method,
        method_args=method_args or {},
        lr=lr,
        schedule=Exponential(0.01, epochs),
        epochs=epochs,
        batch_size=32,
        augment="none",
        seed=seed,
    )


ENTRIES = (
    Experiment(
        "pie-5k",
        "Group sizes in PIE's MLP, on digits",
        f"{DIGITS}, 12 epochs of 62 steps, batch 64, 6 learning rates, 5 seeds",
        pie_5k,
    ),
    Experiment(
        "vgg-5k",
        "VGG-style network at width 1/4, on digits",
        f"{DIGITS}, 5 epochs of 125 steps, batch 32, 9 learning rates, 5 seeds",
        vgg_5k,
    ),
    Experiment(
        "inception-5k",
        "BN-Inception at width 1/16, on digits",
        f"{DIGITS}, 3 epochs of 125 steps, batch 32, 5 learning rates, 5 seeds",
        inception_5k,
    ),
    Experiment(
        "wrn-5k",
        "WRN-16-2, on digits",
        f"{DIGITS}, 2 epochs of 125 steps, batch 32, 5 learning rates, 5 seeds",
        wrn_5k,
    ),
)
