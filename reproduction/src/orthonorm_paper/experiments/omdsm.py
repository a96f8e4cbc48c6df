"""Ways to keep the weights of an MLP orthogonal on MNIST: figures 2 and 7 to 14 of the paper, and the demo."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from orthonorm_paper.records.run import Run, Scalar
from orthonorm_paper.records.schedules import Constant, Halve, Schedule

from .experiment import DIGITS, FIVE, Experiment

PLAIN = ("plain", "plain-he", "plain-orthogonal")
RIEMANNIAN = ("EI+QR", "CI+QR", "CayT", "QR")
RELEASED = tuple(f"{label}-released" for label in RIEMANNIAN)
OLM = ("OLM", "OLM-balanced", "OLM-uncentred")
RATES = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
DEPTHS = (4, 6, 8)
BATCHES = (1024, 512, 256)
# Method, its arguments, learning rates.
Tried = tuple[str, dict[str, Scalar], tuple[float, ...]]

# One seed at these learning rates, so that no best is at an edge; then ten at those beside the best.
_SCAN: tuple[Tried, ...] = (
    ("plain", {}, (0.2, 0.5, 1.0, 2.0)),
    ("plain-he", {}, (0.02, 0.05, 0.1, 0.2, 0.5)),
    ("plain-orthogonal", {}, (0.02, 0.05, 0.1, 0.2, 0.5)),
    ("OLM-uncentred", {}, (0.1, 0.5, 1.0, 2.0)),
    ("OLM-balanced", {}, (0.1, 0.5, 1.0, 2.0)),
    ("orthonorm", {}, (0.1, 0.5, 1.0, 2.0)),
    ("orthonorm", {"scale": 1.414}, (0.1, 0.5, 1.0, 2.0)),
)
_TEN: tuple[Tried, ...] = (
    ("plain", {}, (0.5,)),
    ("plain-he", {}, (0.1, 0.2)),
    ("plain-orthogonal", {}, (0.1, 0.2)),
    ("OLM-balanced", {}, (0.5, 1.0)),
    ("orthonorm", {}, (0.5,)),
    ("orthonorm", {"scale": 1.414}, (0.5, 1.0)),
)


def demo() -> list[Run]:
    """The deepest network of the MNIST comparison on 4,000 digits for 600 steps, at two learning rates."""
    return [
        deep_run("demo", method, lr, seed)
        for seed in range(3)
        for method in (*PLAIN, "OLM-balanced")
        for lr in (0.1, 0.5)
    ]


def headline() -> list[Run]:
    """The demo's network by ten seeds, at the learning rates that a scan by one seed left."""
    parts = [(_SCAN, (0,)), (_TEN, range(10))]
    runs = [
        deep_run("headline", method, lr, seed, arguments)
        for tried, seeds in parts
        for seed in seeds
        for method, arguments, rates in tried
        for lr in rates
    ]
    return list(dict.fromkeys(runs))


def headline_avx2() -> list[Run]:
    """The ten seeds again, for a processor without AVX-512 instructions, whose rounding is another."""
    runs = [dataclasses.replace(run, experiment="headline-avx2") for run in headline()]
    ten = {(method, tuple(arguments.items()), lr) for method, arguments, rates in _TEN for lr in rates}
    return [run for run in runs if (run.method, tuple(run.method_args), run.lr) in ten]


def deep_run(
    experiment: str, method: str, lr: float, seed: int, method_args: Mapping[str, Scalar] | None = None
) -> Run:
    """One run of the MLP with 8 hidden layers: constant learning rate, 40 epochs of 15 steps."""
    return Run(
        experiment=experiment,
        dataset="mnist-5k",
        model="mlp",
        model_args={"hidden_layers": 8},
        method=method,
        method_args=method_args or {},
        lr=lr,
        epochs=40,
        batch_size=256,
        seed=seed,
    )


def omdsm() -> list[Run]:
    """The paper's comparison: all methods, depths, batches and learning rates; 80 epochs, halved at 40."""
    return [
        _omdsm_run("omdsm", "mnist", method, depth, batch, lr, seed, epochs=80)
        for depth in DEPTHS
        for batch in BATCHES
        for seed in FIVE
        for method in (*PLAIN, *RIEMANNIAN, *RELEASED, "OLM_var", *OLM)
        for lr in RATES
    ]


def omdsm_5k() -> list[Run]:
    """The same on 4,000 digits, with some 500 to 600 steps at each batch, halved half-way."""
    return [
        _omdsm_run("omdsm-5k", "mnist-5k", method, depth, batch, lr, seed, epochs=epochs)
        for depth in DEPTHS
        for batch, epochs in ((1024, 160), (512, 80), (256, 40))
        for seed in FIVE
        for method in (*PLAIN, *RIEMANNIAN, *RELEASED, "OLM_var", *OLM)
        for lr in RATES
    ]


def omdsm_5k_constant() -> list[Run]:
    """The same with 4 hidden layers and a constant learning rate: what the halving hides."""
    return [
        _omdsm_run("omdsm-5k-constant", "mnist-5k", method, 4, 256, lr, seed, epochs=40, schedule=Constant())
        for seed in FIVE
        for method in (*PLAIN, *RIEMANNIAN, "OLM_var", *OLM)
        for lr in RATES
    ]


def _omdsm_run(
    experiment: str,
    dataset: str,
    method: str,
    depth: int,
    batch: int,
    lr: float,
    seed: int,
    *,
    epochs: int,
    schedule: Schedule | None = None,
) -> Run:
    return Run(
        experiment=experiment,
        dataset=dataset,
        model="mlp",
        model_args={"hidden_layers": depth},
        method=method,
        lr=lr,
        schedule=schedule or Halve(epochs // 2),
        epochs=epochs,
        batch_size=batch,
        seed=seed,
    )


ENTRIES = (
    Experiment(
        "demo",
        "OLM against plain in an 8-hidden-layer MLP",
        f"{DIGITS}, 40 epochs of 15 steps, 3 seeds",
        demo,
    ),
    Experiment(
        "headline",
        "The demo's comparison by ten seeds, at the learning rates that a scan left",
        f"{DIGITS}, 40 epochs of 15 steps, 10 seeds",
        headline,
    ),
    Experiment(
        "headline-avx2",
        "The headline's ten seeds without AVX-512 instructions (set ATEN_CPU_CAPABILITY=avx2)",
        f"{DIGITS}, 40 epochs of 15 steps, 10 seeds",
        headline_avx2,
    ),
    Experiment(
        "omdsm",
        "Ways to keep the weights of an MLP orthogonal",
        "MNIST, 80 epochs, learning rate halved at 40, 5 seeds",
        omdsm,
        shows="Figures 2, 7-14",
        size="full",
    ),
    Experiment(
        "omdsm-5k",
        "The same comparison on 5,000 digits",
        f"{DIGITS}; batch 256: 40 epochs of 15 steps, "
        "512: 80 of 7, 1024: 160 of 3; learning rate halved half-way; 5 seeds",
        omdsm_5k,
    ),
    Experiment(
        "omdsm-5k-constant",
        "The same with a constant learning rate",
        f"{DIGITS}; 4 hidden layers, batch 256, 40 epochs of 15 steps; 5 seeds",
        omdsm_5k_constant,
    ),
)
