"""`planned`: the runs of an experiment, each at the rate that another experiment chose on a validation split."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.experiments import Experiment, experiment, select
from orthonorm_paper.records.chosen_learning_rate import Key, selected, value
from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.run import Run

# All that decides a result but rate and seed, and what the two experiments may differ in.
BY = ("dataset", "optimizer", "model", "model_args", "method", "method_args")


def planned(entry: Experiment, results: Path, only: list[str] | None = None, options: Sequence[str] = ()) -> list[Run]:
    """Runs of an experiment that meet the conditions, at the rates chosen where the experiment asks for that.

    Args:
        entry: the experiment.
        results: folder of the results; that of ``entry.rates_from`` lies inside.
        only: conditions of ``select``.
        options: of the command line, that the command in an error needs too.

    Raises:
        UserError: a condition that leaves nothing, or runs that choose a rate and are missing: it names them.
    """
    runs = select(entry.runs(), only or [])
    if not entry.rates_from:
        return runs
    rates = _rates(entry, runs, results, _options(only, options))
    chosen = [run for run in runs if run.lr == rates.get(_key(run))]
    if not chosen:
        words = ", ".join(f"{rate:g}" for rate in sorted(set(rates.values())))
        raise UserError(f"no run is at a rate that {entry.rates_from} chose ({words}): leave lr out of --only")
    return chosen


def diverged_everywhere(entry: Experiment, results: Path, only: list[str] | None = None) -> list[str]:
    """Methods with their arguments that diverged at every rate of the experiment that chooses, and so do not run.

    Raises:
        UserError: as ``planned``.
    """
    if not entry.rates_from:
        return []
    runs = select(entry.runs(), only or [])
    rates = _rates(entry, runs, results)
    without = (run for run in runs if _key(run) not in rates)
    return list(dict.fromkeys(" ".join([run.method, *(f"{k}={v}" for k, v in run.method_args)]) for run in without))


def _options(only: Sequence[str] | None, options: Sequence[str]) -> str:
    # What the two experiments may differ in is no condition on the one that chooses.
    fields = {condition: condition.partition("=")[0] for condition in only or ()}
    kept = [f"--only {shlex.quote(c)}" for c, field in fields.items() if field not in {"dataset", "lr", "seed"}]
    return "".join(f" {word}" for word in (*kept, *([shlex.join(options)] if options else [])))


def _rates(entry: Experiment, runs: list[Run], results: Path, options: str = "") -> dict[Key, float]:
    keys = {_key(run) for run in runs}
    wanted = [run for run in experiment(entry.rates_from).runs() if _key(run) in keys]
    there = set(wanted)
    records = [record for record in read_folder(results / entry.rates_from) if record.run in there]
    try:
        return selected(records, by=BY, runs=wanted)
    except UserError as error:
        raise UserError(
            f"{entry.name} takes its learning rates from {entry.rates_from}: {error} "
            f"(orthonorm-paper run {entry.rates_from}{options})"
        ) from None


def count(entry: Experiment, runs: Collection[Run]) -> int:
    """How many of the runs of an experiment there are once each has its rate.

    Examples:
        >>> vgg = experiment("vgg")
        >>> count(vgg, vgg.runs()), len(vgg.runs())
        (90, 270)
    """
    return len({(_key(run), run.seed) for run in runs}) if entry.rates_from else len(runs)


def _key(run: Run) -> Key:
    return tuple(value(run, field) for field in BY)
