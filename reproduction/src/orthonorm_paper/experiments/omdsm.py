"""Ways to keep the weights of an MLP orthogonal on MNIST: figures 2 and 7 to 14 of the paper, and the demo."""

from __future__ import annotations

from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import Constant, Halve, Schedule

from .experiment import Experiment

PLAIN = ("plain", "plain-he", "plain-orthogonal")
RIEMANNIAN = ("EI+QR", "CI+QR", "CayT", "QR")
OLM = ("OLM", "OLM-balanced", "OLM-uncentred")
RATES = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
DEPTHS = (4, 6, 8)
BATCHES = (1024, 512, 256)
SEEDS = (0, 1, 2)


def demo() -> list[Run]:
    """The deepest network of the MNIST comparison on 4,000 digits for 600 steps."""
    return [
        Run(
            experiment="demo",
            dataset="mnist-5k",
            model="mlp",
            model_args={"hidden_layers": 8},
            method=method,
            lr=lr,
            epochs=40,
            batch_size=256,
            seed=seed,
        )
        for seed in SEEDS
        for method in (*PLAIN, "OLM-balanced")
        for lr in (0.2, 0.5)
    ]


def omdsm() -> list[Run]:
    """The paper's comparison: all methods, depths, batches and rates; 80 epochs, halved at 40."""
    return [
        _omdsm_run("omdsm", "mnist", method, depth, batch, lr, seed, epochs=80)
        for depth in DEPTHS
        for batch in BATCHES
        for seed in SEEDS
        for method in (*PLAIN, *RIEMANNIAN, "OLM_var", *OLM)
        for lr in RATES
    ]


def omdsm_5k() -> list[Run]:
    """The same on 4,000 digits, with some 500 to 600 steps at each batch, halved half-way."""
    return [
        _omdsm_run("omdsm-5k", "mnist-5k", method, depth, batch, lr, seed, epochs=epochs)
        for depth in DEPTHS
        for batch, epochs in ((1024, 160), (512, 80), (256, 40))
        for seed in SEEDS
        for method in (*PLAIN, *RIEMANNIAN, "OLM_var", *OLM)
        for lr in RATES
    ]


def omdsm_5k_constant() -> list[Run]:
    """The same with 4 hidden layers and a constant rate: what the halving hides."""
    return [
        _omdsm_run("omdsm-5k-constant", "mnist-5k", method, 4, 256, lr, seed, epochs=40, schedule=Constant())
        for seed in SEEDS
        for method in (*PLAIN, *RIEMANNIAN, "OLM_var", *OLM)
        for lr in RATES
        if 0.05 <= lr <= 1
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
        "5,000 real MNIST digits (4,000 to train), 40 epochs of 15 steps, 3 seeds",
        demo,
    ),
    Experiment(
        "omdsm",
        "Ways to keep the weights of an MLP orthogonal",
        "MNIST, 80 epochs, rate halved at 40, 3 seeds",
        omdsm,
        shows="Figures 2, 7-14",
        size="full",
    ),
    Experiment(
        "omdsm-5k",
        "The same comparison on 5,000 digits",
        "5,000 real MNIST digits (4,000 to train); batch 256: 40 epochs of 15 steps, "
        "512: 80 of 7, 1024: 160 of 3; rate halved half-way; 3 seeds",
        omdsm_5k,
    ),
    Experiment(
        "omdsm-5k-constant",
        "The same with a constant rate",
        "5,000 real MNIST digits (4,000 to train); 4 hidden layers, batch 256, 40 epochs of 15 steps; 3 seeds",
        omdsm_5k_constant,
    ),
)
