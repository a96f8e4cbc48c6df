"""`planned`: the runs of an experiment, each at the learning rate that another one chose on a validation split."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.experiments import Experiment, experiment, select
from orthonorm_paper.records.chosen_learning_rate import Key, key_of, selected
from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.run import Run


class Planned(NamedTuple):
    """Runs at the chosen learning rates, and methods with their arguments that diverged at every one, so do not run."""

    runs: list[Run]
    left_out: list[str]


def planned(entry: Experiment, results: Path, only: list[str] | None = None, options: Sequence[str] = ()) -> Planned:
    """Runs of an experiment that meet the conditions, at the learning rates chosen where the experiment asks for that.

    Args:
        entry: the experiment.
        results: folder of the results; that of ``entry.rates_from`` lies inside.
        only: conditions of ``select``.
        options: of the command line, that the command in an error needs too.

    Raises:
        UserError: a condition that leaves nothing, or runs that choose a learning rate and are missing: it names them.
    """
    runs = select(entry.runs(), only or [])
    if not entry.rates_from:
        return Planned(runs, [])
    rates = _rates(entry, runs, results, _options(only, options))
    chosen = [run for run in runs if run.lr == rates.get(key_of(run))]
    if not chosen:
        every = ", ".join(f"{rate:g}" for rate in sorted(set(rates.values())))
        raise UserError(
            f"no run is at a learning rate that {entry.rates_from} chose ({every}). Leave lr out of --only."
        )
    without = (run for run in runs if key_of(run) not in rates)
    labels = (" ".join([run.method, *(f"{k}={v}" for k, v in run.method_args)]) for run in without)
    return Planned(chosen, list(dict.fromkeys(labels)))


def _options(only: Sequence[str] | None, options: Sequence[str]) -> str:
    # What the two experiments may differ in is no condition on the one that chooses.
    fields = {condition: condition.partition("=")[0] for condition in only or ()}
    kept = [f"--only {shlex.quote(c)}" for c, field in fields.items() if field not in {"dataset", "lr", "seed"}]
    return "".join(f" {word}" for word in (*kept, *([shlex.join(options)] if options else [])))


def _rates(entry: Experiment, runs: list[Run], results: Path, options: str) -> dict[Key, float]:
    keys = {key_of(run) for run in runs}
    wanted = [run for run in experiment(entry.rates_from).runs() if key_of(run) in keys]
    try:
        return selected(read_folder(results / entry.rates_from), wanted)
    except UserError as error:
        raise UserError(
            f"{entry.name} takes its learning rates from {entry.rates_from}: {error} "
            f"(orthonorm-paper run {entry.rates_from}{options})"
        ) from None


def count(entry: Experiment, runs: Collection[Run]) -> int:
    """How many of the runs of an experiment there are once each has its learning rate.

    Examples:
        >>> vgg = experiment("vgg")
        >>> count(vgg, vgg.runs()), len(vgg.runs())
        (90, 270)
    """
    return len({(key_of(run), run.seed) for run in runs}) if entry.rates_from else len(runs)
