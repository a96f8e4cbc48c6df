"""What each choice of an orthogonal weight is worth: one factor at a time, on the MLP with 8 hidden layers."""

from __future__ import annotations

from orthonorm_paper.records.run import Run, Scalar

from .experiment import Experiment
from .omdsm import FIVE, deep_run

# The two at the ends ran by one seed: no best is there.
RATES = (0.1, 0.3, 1.0, 0.03, 3.0)

# The library's defaults, then one factor changed at a time, then its neighbours.
FACTORS: tuple[tuple[str, dict[str, Scalar]], ...] = (
    ("orthonorm", {}),
    ("orthonorm", {"center": True}),
    ("orthonorm", {"initial": "weight"}),
    ("orthonorm", {"keep_norm": True}),
    ("orthonorm", {"scale": 1.414}),
    ("orthonorm", {"scale": "learned"}),
    ("orthonorm", {"group_size": 50}),
    ("orthonorm", {"group_size": 10}),
    ("torch-orthogonal", {}),
    ("penalty-0.01", {}),
    ("penalty-0.1", {}),
)


def ablation_mlp_5k() -> list[Run]:
    """Every factor at every rate, seed by seed."""
    return [
        deep_run("ablation-mlp-5k", method, lr, seed, arguments)
        for seed in FIVE
        for method, arguments in FACTORS
        for lr in RATES
    ]


ENTRIES = (
    Experiment(
        "ablation-mlp-5k",
        "One choice at a time: centring, V at the start, its norm, scale, groups",
        "5,000 real MNIST digits (4,000 to train), 8 hidden layers, 40 epochs of 15 steps, SGD, 5 seeds",
        ablation_mlp_5k,
    ),
)
