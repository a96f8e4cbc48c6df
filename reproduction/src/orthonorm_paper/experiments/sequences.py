"""Runs of the sequence experiments: what keeping the recurrent weight orthogonal does to an RNN and to an LSTM.

They are not the paper's: its method on another kind of network. Every method gets the same learning rates, steps and,
but for the free weight with torch's initialization, the same weights to begin with.
"""

from __future__ import annotations

from orthonorm_paper.records.run import Run, Scalar
from orthonorm_paper.records.sequences import METHODS, MODELS, SEEDS

from .experiment import DIGITS, Experiment

RATES = {"copying": (0.001, 0.003, 0.01, 0.03, 0.1), "rows-5k": (0.003, 0.01, 0.0003, 0.001, 0.03, 0.1)}


def copying() -> list[Run]:
    """Ten letters to recall after ten blanks: every state is read."""
    return [
        _run("copying", "copying-10", {"each_step": True}, model, method, lr, seed, epochs=20, batch_size=32)
        for seed in SEEDS["copying"]
        for lr in RATES["copying"]
        for model in MODELS
        for method in METHODS
    ]


def rows_5k() -> list[Run]:
    """Digits of 32 rows, a row a step: the last state is read."""
    return [
        rows_run("rows-5k", model, method, lr, seed)
        for seed in SEEDS["rows-5k"]
        for lr in RATES["rows-5k"]
        for model in MODELS
        for method in METHODS
    ]


def rows_run(experiment: str, model: str, method: str, lr: float, seed: int) -> Run:
    """One run on rows of digits."""
    return _run(experiment, "mnist-5k", {}, model, method, lr, seed, epochs=10, batch_size=100)


def _run(
    experiment: str,
    dataset: str,
    arguments: dict[str, Scalar],
    model: str,
    method: str,
    lr: float,
    seed: int,
    *,
    epochs: int,
    batch_size: int,
) -> Run:
    return Run(
        experiment=experiment,
        dataset=dataset,
        model=model,
        model_args={"width": 64} | arguments,
        method=method,
        optimizer="adam",
        lr=lr,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
    )


ENTRIES = (
    Experiment(
        "copying",
        "Orthogonal recurrent weights: letters to recall (RNN, LSTM)",
        "copying problem (generated), 10 letters after 10 blanks; 20 epochs of 100 steps, Adam, 3 seeds",
        copying,
    ),
    Experiment(
        "rows-5k",
        "Orthogonal recurrent weights: digits read row by row (RNN, LSTM)",
        f"{DIGITS}, 32 rows each; 10 epochs of 40 steps, Adam, 5 seeds",
        rows_5k,
    ),
)
