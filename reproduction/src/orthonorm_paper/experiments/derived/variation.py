"""An experiment at other learning rates, epochs, seeds or precision: a variation with a name of its own."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.experiments import Experiment
from orthonorm_paper.records.run import PRECISIONS, Run
from orthonorm_paper.records.schedules import scaled
from orthonorm_paper.records.variations import variation_name


def varied(
    experiment: Experiment, rates: Sequence[float] = (), epochs: int | None = None, seeds: int | None = None
) -> Experiment:
    """The experiment with every kind of run at these learning rates, so many epochs, by so many seeds from 0.

    Without any of them it is the experiment itself. A schedule is stretched with the epochs. With learning rates given,
    none is taken from another experiment.

    Raises:
        UserError: a learning rate that is not positive, fewer than one epoch or seed.

    Examples:
        >>> from orthonorm_paper.experiments import experiment
        >>> one = varied(experiment("demo"), rates=(0.03,), epochs=10, seeds=1)
        >>> one.name, len(one.runs()), {run.lr for run in one.runs()}
        ('demo-lr0.03-epochs10-seeds1', 4, {0.03})
    """
    for word, number in (("epochs", epochs), ("seeds", seeds)):
        if number is not None and number < 1:
            raise UserError(f"{word} must be at least 1; got {number}.")
    if any(not rate > 0 for rate in rates):
        raise UserError(f"learning rates must be positive; got {', '.join(f'{rate:g}' for rate in rates)}.")
    if not rates and epochs is None and seeds is None:
        return experiment
    name = variation_name(experiment.name, rates, epochs, seeds)
    words = [f"learning rates {', '.join(f'{rate:g}' for rate in rates)}"] if rates else []
    words += [f"{epochs} epochs"] if epochs is not None else []
    words += [f"seeds 0 to {seeds - 1}"] if seeds is not None else []
    return dataclasses.replace(
        experiment,
        name=name,
        budget=f"{experiment.budget}; but {', '.join(words)}",
        runs=lambda: _runs(experiment.runs(), name, rates, epochs, seeds),
        rates_from="" if rates else experiment.rates_from,
        size="reduced",
        shows="",
    )


def _runs(runs: list[Run], name: str, rates: Sequence[float], epochs: int | None, seeds: int | None) -> list[Run]:
    found: dict[Run, None] = {}
    numbers = sorted({run.seed for run in runs}) if seeds is None else range(seeds)
    for seed in numbers:
        for run in runs:
            length = epochs or run.epochs
            schedule = scaled(run.schedule, length, run.epochs)
            for lr in rates or (run.lr,):
                found[dataclasses.replace(run, experiment=name, lr=lr, seed=seed, epochs=length, schedule=schedule)] = (
                    None
                )
    return list(found)


def rates_of(text: str | None) -> tuple[float, ...]:
    """Learning rates from the command line: numbers with commas between them.

    Raises:
        UserError: something else.

    Examples:
        >>> rates_of("0.03,0.1"), rates_of(None)
        ((0.03, 0.1), ())
    """
    try:
        return tuple(float(part) for part in text.split(",")) if text else ()
    except ValueError:
        raise UserError(f"--learning-rates takes numbers with commas between them, as 0.03,0.1; got {text!r}") from None


def at_precision(experiment: Experiment, precision: str | None) -> Experiment:
    """The experiment with all runs at a precision of Lightning's, named ``NAME-PRECISION``; None is the experiment.

    Raises:
        UserError: an unknown precision.

    Examples:
        >>> from orthonorm_paper.experiments import experiment
        >>> varied = at_precision(experiment("demo"), "bf16-mixed")
        >>> varied.name, varied.runs()[0].experiment, varied.runs()[0].precision
        ('demo-bf16-mixed', 'demo-bf16-mixed', 'bf16-mixed')
    """
    if precision is None:
        return experiment
    if precision not in PRECISIONS:
        raise UserError(f"precision must be one of {', '.join(PRECISIONS)}; got {precision!r}.")
    name = f"{experiment.name}-{precision}"
    return dataclasses.replace(
        experiment,
        name=name,
        budget=f"{experiment.budget}; precision {precision}",
        runs=lambda: [dataclasses.replace(run, experiment=name, precision=precision) for run in experiment.runs()],
    )
