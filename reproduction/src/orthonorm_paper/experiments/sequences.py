"""Runs of the sequence experiments: what keeping the recurrent weight orthogonal does to an RNN and to an LSTM.

They are not the paper's: its method on another kind of network. Every method gets the same rates, steps and, but for
the free weight with torch's start, the same weights to begin with.
"""

from __future__ import annotations

from orthonorm_paper.records.run import Run, Scalar
from orthonorm_paper.records.sequences import METHODS, MODELS, RATES, SEEDS


def copying() -> list[Run]:
    """Ten letters to recall after ten blanks: every state is read."""
    return _runs("copying", "copying-10", {"each_step": True}, epochs=20, batch_size=32)


def rows_5k() -> list[Run]:
    """Digits of 32 rows, a row a step: the last state is read."""
    return _runs("rows-5k", "mnist-5k", {}, epochs=10, batch_size=100)


def _runs(experiment: str, dataset: str, arguments: dict[str, Scalar], *, epochs: int, batch_size: int) -> list[Run]:
    return [
        Run(
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
        for seed in SEEDS
        for lr in RATES[experiment]
        for model in MODELS
        for method in METHODS
    ]
