"""Experiments by name; each is a function that gives its runs, and a grid is a comprehension."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orthonorm.paper.config import Run
from orthonorm.paper.errors import UserError
from orthonorm.paper.schedules import Constant, Halve, Schedule
from orthonorm.paper.sequences import copying, rows_5k

PLAIN = ("plain", "plain-he", "plain-orthogonal")
RIEMANNIAN = ("EI+QR", "CI+QR", "CayT", "QR")
OLM = ("OLM", "OLM-balanced", "OLM-uncentred")
RATES = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)
DEPTHS = (4, 6, 8)
BATCHES = (1024, 512, 256)
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Experiment:
    """A named list of runs.

    Attributes:
        name: as the command line takes it; also the folder of its results.
        title: one line.
        budget: data set, epochs and seeds in words, printed beside every figure.
        runs: gives the runs.
    """

    name: str
    title: str
    budget: str
    runs: Callable[[], list[Run]]


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


EXPERIMENTS: dict[str, Experiment] = {
    entry.name: entry
    for entry in (
        Experiment(
            "demo",
            "OLM against plain in an 8-hidden-layer MLP",
            "5,000 real MNIST digits (4,000 to train), 40 epochs of 15 steps, 3 seeds",
            demo,
        ),
        Experiment(
            "omdsm",
            "Ways to keep the weights of an MLP orthogonal (figures 2 and 7-14)",
            "MNIST, 80 epochs, rate halved at 40, 3 seeds",
            omdsm,
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
        Experiment(
            "copying",
            "Orthogonal recurrent weights: letters to recall (RNN, LSTM)",
            "copying problem (generated), 10 letters after 10 blanks; 20 epochs of 100 steps, Adam, 3 seeds",
            copying,
        ),
        Experiment(
            "rows-5k",
            "Orthogonal recurrent weights: digits read row by row (RNN, LSTM)",
            "5,000 real MNIST digits (4,000 to train), 32 rows each; 10 epochs of 40 steps, Adam, 3 seeds",
            rows_5k,
        ),
    )
}


def experiment(name: str) -> Experiment:
    """Experiment by name; an unknown one is a ``UserError`` that lists the known ones."""
    if name not in EXPERIMENTS:
        raise UserError(f"experiment is one of {', '.join(EXPERIMENTS)}, got {name!r}")
    return EXPERIMENTS[name]


def select(runs: list[Run], only: list[str]) -> list[Run]:
    """Runs whose fields have the wanted values: ``only`` holds texts like ``method=OLM,plain``.

    Fields are those of ``Run`` and of its model and method arguments; numbers compare as numbers.

    Raises:
        UserError: no ``=``, a field that no run has, or nothing left.

    Example:
        >>> [run.id for run in select(demo(), ["method=plain", "lr=0.20", "seed=0,1"])]
        ['plain-mlp8-b256-lr0.2-s0-3edc96f2', 'plain-mlp8-b256-lr0.2-s1-c59fb96a']
    """
    for condition in only:
        field, equals, values = condition.partition("=")
        if not equals or not field:
            raise UserError(f"--only takes FIELD=VALUE[,VALUE...], got {condition!r}")
        known = sorted({name for run in runs for name in _values(run)})
        if field not in known:
            raise UserError(f"--only {condition}: the runs have no {field}; {', '.join(known)}")
        wanted = values.split(",")
        there = sorted({str(_values(run).get(field)) for run in runs})
        runs = [run for run in runs if any(_equal(_values(run).get(field), w) for w in wanted)]
        if not runs:
            raise UserError(f"--only {condition} leaves no run; {field} is {', '.join(there)}")
    return runs


def _values(run: Run) -> dict[str, object]:
    data = run.to_json()
    nested = {**data.pop("model_args"), **data.pop("method_args")}
    del data["schedule"]
    return data | nested


def _equal(value: object, text: str) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    return str(value).lower() == text.lower()
