"""The MLP on PIE: group sizes, batch normalisation and Adam (figures 3 and 4), and the learning rates they take."""

from __future__ import annotations

from orthonorm_paper.records.run import Optimizer, Run, Scalar

from .experiment import FIVE, Experiment

SGD_RATES = (0.05, 0.1, 0.2, 0.5, 1.0)
ADAM_RATES = (0.001, 0.002, 0.005, 0.01)

Setting = tuple[str, dict[str, Scalar]]

# 128 rows in 128 dimensions are beyond the limit of centred rows (127 + 1), so that uncentred ones stand beside them.
GROUPS: tuple[Setting, ...] = (
    ("plain", {}),
    ("plain-he", {}),
    ("plain-orthogonal", {}),
    ("WN", {}),
    ("WN-unit", {}),
    *(("OLM", {"group_size": size}) for size in (16, 32, 64, 128)),
    ("OLM", {"group_size": 128, "center": False}),
    ("OLM-scale", {"group_size": 128}),
)
# The group is the authors', 64, where the paper says none.
OTHERS: tuple[Setting, ...] = tuple((method, {}) for method in ("plain", "plain-he", "WN", "OLM", "OLM-scale"))


def groups(experiment: str, seeds: tuple[int, ...] = FIVE, dataset: str = "pie") -> list[Run]:
    """Group sizes, by SGD at every learning rate."""
    return _runs(experiment, dataset, GROUPS, "sgd", SGD_RATES, seeds)


def batchnorm(experiment: str, seeds: tuple[int, ...] = FIVE, dataset: str = "pie") -> list[Run]:
    """With batch normalisation, by SGD at every learning rate."""
    return _runs(experiment, dataset, OTHERS, "sgd", SGD_RATES, seeds, {"batch_norm": True})


def adam(experiment: str, seeds: tuple[int, ...] = FIVE, dataset: str = "pie") -> list[Run]:
    """By Adam at every learning rate."""
    return _runs(experiment, dataset, OTHERS, "adam", ADAM_RATES, seeds)


def tune() -> list[Run]:
    """All of them once, on the split that chooses the learning rates."""
    return [run for each in (groups, batchnorm, adam) for run in each("pie-tune", (0,), "pie-tune")]


def _runs(
    experiment: str,
    dataset: str,
    settings: tuple[Setting, ...],
    optimizer: Optimizer,
    rates: tuple[float, ...],
    seeds: tuple[int, ...],
    model_args: dict[str, Scalar] | None = None,
) -> list[Run]:
    return [
        Run(
            experiment=experiment,
            dataset=dataset,
            model="pie-mlp",
            model_args=model_args or {},
            method=method,
            method_args=arguments,
            optimizer=optimizer,
            lr=lr,
            epochs=80,
            batch_size=256,
            seed=seed,
        )
        for seed in seeds
        for method, arguments in settings
        for lr in rates
    ]


_BUDGET = "PIE, 80 epochs, batch 256, learning rate from pie-tune, 5 seeds"

ENTRIES = (
    Experiment(
        "pie-tune",
        "Learning rates of the PIE experiments",
        "a tenth of PIE's training set held out, 80 epochs, batch 256, 1 seed",
        tune,
        shows="Figures 3, 4 (learning rates)",
        size="full",
    ),
    Experiment(
        "pie-groups",
        "Group sizes in an MLP on PIE",
        _BUDGET,
        lambda: groups("pie-groups"),
        shows="Figure 3",
        rates_from="pie-tune",
        size="full",
    ),
    Experiment(
        "pie-batchnorm",
        "The MLP with batch normalisation",
        _BUDGET,
        lambda: batchnorm("pie-batchnorm"),
        shows="Figure 4 (a)",
        rates_from="pie-tune",
        size="full",
    ),
    Experiment(
        "pie-adam",
        "The MLP with Adam",
        _BUDGET,
        lambda: adam("pie-adam"),
        shows="Figure 4 (b)",
        rates_from="pie-tune",
        size="full",
    ),
)
