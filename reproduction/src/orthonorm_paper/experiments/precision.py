"""An experiment at another precision: a variation with a name of its own, as precision decides a result."""

from __future__ import annotations

import dataclasses

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.run import PRECISIONS

from . import Experiment


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
        raise UserError(f"precision is one of {', '.join(PRECISIONS)}, got {precision!r}")
    name = f"{experiment.name}-{precision}"
    return dataclasses.replace(
        experiment,
        name=name,
        budget=f"{experiment.budget}; precision {precision}",
        runs=lambda: [dataclasses.replace(run, experiment=name, precision=precision) for run in experiment.runs()],
    )
