"""What each choice of an orthogonal weight is worth: one factor at a time, on three small networks."""

from __future__ import annotations

import dataclasses

from orthonorm_paper.records.run import Run, Scalar

from .experiment import DIGITS, FIVE, Experiment
from .omdsm import deep_run
from .sequences import rows_run
from .small import small_run

Factor = tuple[str, dict[str, Scalar]]

# Some of them ran by one seed, so that no best is at an edge.
MLP_RATES = (0.1, 0.3, 1.0, 0.03, 3.0)
ADAM_RATES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1)
VGG_RATES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
ROWS_RATES = (0.001, 0.003, 0.01, 0.03, 0.1)

# The library's defaults, then how V starts and whether its norm is kept.
PARAMETER: tuple[Factor, ...] = (
    ("orthonorm", {}),
    ("orthonorm", {"initial": "weight"}),
    ("orthonorm", {"keep_norm": True}),
)
FACTORS: tuple[Factor, ...] = (
    *PARAMETER,
    ("orthonorm", {"center": True}),
    ("orthonorm", {"scale": 1.414}),
    ("orthonorm", {"scale": "learned"}),
)
PENALTIES: tuple[Factor, ...] = (("penalty-0.01", {}), ("penalty-0.1", {}))
RECURRENT = ("recurrent-orthonorm", "recurrent-orthonorm-weight", "recurrent-orthonorm-kept")


def ablation_mlp_5k() -> list[Run]:
    """Every factor at every learning rate, seed by seed."""
    groups: tuple[Factor, ...] = (("orthonorm", {"group_size": 50}), ("orthonorm", {"group_size": 10}))
    return [
        deep_run("ablation-mlp-5k", method, lr, seed, arguments)
        for seed in FIVE
        for method, arguments in (*FACTORS, *groups, ("torch-orthogonal", {}), *PENALTIES)
        for lr in MLP_RATES
    ]


def ablation_adam_5k() -> list[Run]:
    """How V starts and whether its norm is kept, with Adam, beside free weights."""
    free: tuple[Factor, ...] = (("plain-he", {}), ("plain-orthogonal", {}))
    return [
        dataclasses.replace(deep_run("ablation-adam-5k", method, lr, seed, arguments), optimizer="adam")
        for seed in FIVE
        for method, arguments in (*PARAMETER, *free)
        for lr in ADAM_RATES
    ]


def ablation_vgg_5k() -> list[Run]:
    """The same on the VGG-style network of `vgg-5k`."""
    groups: tuple[Factor, ...] = (("orthonorm", {"group_size": 64}), ("orthonorm", {"group_size": 16}))
    return [
        small_run("ablation-vgg-5k", "vgg", {"width": 0.25}, method, lr, seed, epochs=5, method_args=arguments)
        for seed in FIVE
        for method, arguments in (*FACTORS, *groups, *PENALTIES)
        for lr in VGG_RATES
    ]


def ablation_rows_5k() -> list[Run]:
    """How V starts and whether its norm is kept, for the recurrent weight of an RNN."""
    return [
        rows_run("ablation-rows-5k", "rnn", method, lr, seed)
        for seed in FIVE
        for method in RECURRENT
        for lr in ROWS_RATES
    ]


ENTRIES = (
    Experiment(
        "ablation-mlp-5k",
        "One choice at a time: centring, the initial V, its norm, scale, groups",
        f"{DIGITS}, 8 hidden layers, 40 epochs of 15 steps, SGD, 5 seeds",
        ablation_mlp_5k,
    ),
    Experiment(
        "ablation-adam-5k",
        "One choice at a time with Adam: the initial V, its norm",
        f"{DIGITS}, 8 hidden layers, 40 epochs of 15 steps, Adam, 5 seeds",
        ablation_adam_5k,
    ),
    Experiment(
        "ablation-vgg-5k",
        "One choice at a time on a VGG-style network at width 1/4",
        f"{DIGITS}, 5 epochs of 125 steps, batch 32, SGD, 5 seeds",
        ablation_vgg_5k,
    ),
    Experiment(
        "ablation-rows-5k",
        "One choice at a time in an RNN: the initial V, its norm",
        f"{DIGITS} read in 32 rows, 10 epochs of 40 steps, Adam, 5 seeds",
        ablation_rows_5k,
    ),
)
