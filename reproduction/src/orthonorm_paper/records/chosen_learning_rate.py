"""Which learning rate an experiment on a validation split chose: the one place that decides it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from orthonorm_paper.exceptions import UserError

from .cells import Cell, cells
from .files import Record
from .run import Run

Key = tuple[object, ...]

BY = ("dataset", "method")
# How many missing runs an error names; it counts them all.
_NAMED = 5


def selected(
    records: Sequence[Record], *, by: Sequence[str] = BY, runs: Iterable[Run] | None = None
) -> dict[Key, float]:
    """Learning rate with the lowest validation error in the last epoch, for each value of ``by``.

    The error is the mean over the seeds, in the records of a data set whose test part is the validation
    split. A run that diverged counts as infinite. Equal errors are distinguished by the validation loss, then
    the smaller rate is taken. A combination that diverged at every rate has none and is missing from the result:
    that is an outcome of the tuning, and blocks no other combination.

    Args:
        records: of the experiment on the validation split; others in the same list are an error with ``runs``.
        by: fields of ``Run`` or of its model's and method's arguments; a data set counts under the name of
            the one it was split from ("cifar10" for "cifar10-tune"), an argument not given as None.
        runs: what must be recorded. Left out, each combination needs every rate and seed that any one has.

    Raises:
        UserError: nothing recorded, runs that are missing (named), ``by`` puts runs together that differ in
            more than rate and seed, or every rate of every combination diverged.

    Examples:
        >>> from orthonorm_paper.records.run import Run
        >>> run = Run(experiment="vgg-tune", dataset="cifar10-tune", model="vgg", method="OLM", lr=0.1,
        ...           epochs=1, batch_size=256)
        >>> from orthonorm_paper.records.files import End, Epoch, Header
        >>> def tried(lr: float, error: float) -> Record:
        ...     header = Header.model_construct(run=dataclasses.replace(run, lr=lr))
        ...     epoch = Epoch.model_construct(test_error=error, test_loss=0.9)
        ...     return Record(header, (epoch,), End.model_construct(outcome="completed"))
        >>> selected([tried(0.1, 30.0), tried(0.5, 20.0)])
        {('cifar10', 'OLM'): 0.5}
    """  # fmt: skip
    groups = candidates(records, by)
    missing = sorted(_missing(records, groups) if runs is None else _unrecorded(records, runs))
    if missing or not groups:
        raise UserError(_incomplete(missing))
    chosen = {}
    for key, tried in groups.items():
        top = choose(tried)
        if top is not None:
            chosen[key] = top.run.lr
    if not chosen:
        key, tried = next(iter(groups.items()))
        rates = ", ".join(f"{cell.run.lr:g}" for cell in tried)
        raise UserError(f"no rate to select for {_words(by, key)}: every one diverged ({rates}); try smaller ones")
    return chosen


def candidates(records: Iterable[Record], by: Sequence[str] = BY) -> dict[Key, list[Cell]]:
    """Cells of each combination by rising rate: what ``choose`` chooses among.

    Raises:
        UserError: ``by`` puts runs together that differ in more than rate and seed.
    """
    groups: dict[Key, list[Cell]] = {}
    for cell in cells(records):
        groups.setdefault(tuple(value(cell.run, field) for field in by), []).append(cell)
    for key, group in groups.items():
        _check_alike(by, key, group)
    return {key: sorted(group, key=lambda cell: cell.run.lr) for key, group in groups.items()}


def choose(tried: Iterable[Cell]) -> Cell | None:
    """Cell with the lowest mean validation error, by the rule of ``selected``; None where every one diverged."""
    finite = [cell for cell in tried if cell.mean("test_error") < float("inf")]
    return min(finite, key=lambda c: (c.mean("test_error"), c.mean("test_loss"), c.run.lr), default=None)


def value(run: Run, field: str) -> object:
    """A field of a run, or an argument of its model or method (None where it was not given).

    Examples:
        >>> value(Run(experiment="x", dataset="pie-tune", model="mlp", method="OLM", method_args={"group_size": 16},
        ...           lr=0.1, epochs=1, batch_size=1), "group_size")
        16
    """  # fmt: skip
    if field == "dataset":
        return run.dataset.replace("-tune", "")
    if field in {item.name for item in dataclasses.fields(Run)}:
        return getattr(run, field)
    return {**run.model_arguments, **run.method_arguments}.get(field)


def _check_alike(by: Sequence[str], key: Key, group: Sequence[Cell]) -> None:
    first = group[0].run.to_json()
    for cell in group[1:]:
        other = cell.run.to_json()
        differ = [name for name in first if name not in {"lr", "seed"} and first[name] != other[name]]
        if differ:
            raise UserError(f"runs of {_words(by, key)} differ in {', '.join(differ)} too: name a field of it in `by`")


def _missing(records: Iterable[Record], groups: dict[Key, list[Cell]]) -> set[str]:
    """Runs that some combination has and another lacks."""
    there = {record.run for record in records}
    grid = {(run.lr, run.seed) for run in there}
    one_of_each = [group[0].run for group in groups.values()]
    wanted = {dataclasses.replace(run, lr=lr, seed=seed) for run in one_of_each for lr, seed in grid}
    return {run.id for run in wanted - there}


def _unrecorded(records: Iterable[Record], runs: Iterable[Run]) -> set[str]:
    wanted, there = set(runs), {record.run for record in records}
    strangers = sorted(run.id for run in there - wanted)
    if strangers:
        raise UserError(f"records of other runs than those to select from: {', '.join(strangers[:_NAMED])}")
    return {run.id for run in wanted - there}


def _incomplete(missing: Sequence[str]) -> str:
    if not missing:
        return "no rate to select: nothing is recorded; run the experiment that chooses it first"
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    runs = "1 run is" if len(missing) == 1 else f"{len(missing)} runs are"
    return f"no rate to select: {runs} missing: {', '.join(missing[:_NAMED])}{more}; run them first"


def _words(by: Sequence[str], key: Key) -> str:
    return ", ".join(f"{field} {item}" for field, item in zip(by, key, strict=True) if item is not None)
