"""Which learning rate an experiment on a validation split chose: the one place that decides it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orthonorm_paper.exceptions import UserError

from .cells import Cell, cells
from .files import Record
from .run import Run

Key = tuple[object, ...]

# All that decides a result but learning rate and seed, and what the two experiments may differ in.
BY = ("dataset", "optimizer", "model", "model_args", "method", "method_args")
# How many missing runs an error names; it counts them all.
_NAMED = 5


def selected(records: Sequence[Record], runs: Iterable[Run]) -> dict[Key, float]:
    """Learning rate with the lowest validation error in the last epoch, for each combination of ``BY``.

    The error is the mean over the seeds, in the records of a data set whose test part is the validation
    split. A run that diverged counts as infinite. Equal errors are distinguished by the validation loss, then
    the smaller learning rate is taken. A combination that diverged at every learning rate has none and is missing from
    the result: that is an outcome of the tuning, and blocks no other combination.

    Args:
        records: of the experiment on the validation split.
        runs: what must be recorded; records of others are left out.

    Raises:
        UserError: nothing recorded, runs that are missing (named), runs of a combination that differ in
            more than learning rate and seed, or every learning rate of every combination diverged.

    Examples:
        >>> from orthonorm_paper.records.run import Run
        >>> given = dict(experiment="x", dataset="cifar10-tune", model="vgg", method="OLM", epochs=1, batch_size=1)
        >>> from orthonorm_paper.records.files import End, Epoch, Header
        >>> def tried(lr: float, error: float) -> Record:
        ...     header = Header.model_construct(run=Run(lr=lr, **given))
        ...     epoch = Epoch.model_construct(test_error=error, test_loss=0.9)
        ...     return Record(header, (epoch,), End.model_construct(outcome="completed"))
        >>> records = [tried(0.1, 30.0), tried(0.5, 20.0)]
        >>> selected(records, [record.run for record in records])
        {('cifar10', 'sgd', 'vgg', (), 'OLM', ()): 0.5}
    """  # fmt: skip
    wanted = set(runs)
    records = [record for record in records if record.run in wanted]
    groups = candidates(records)
    missing = sorted(run.id for run in wanted - {record.run for record in records})
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
        raise UserError(
            f"no learning rate to select for {_words(key)}: every one diverged ({rates}). Try smaller ones."
        )
    return chosen


def candidates(records: Iterable[Record]) -> dict[Key, list[Cell]]:
    """Cells of each combination by rising learning rate: what ``choose`` chooses among.

    Raises:
        UserError: runs of a combination differ in more than learning rate and seed.
    """
    groups: dict[Key, list[Cell]] = {}
    for cell in cells(records):
        groups.setdefault(key_of(cell.run), []).append(cell)
    for key, group in groups.items():
        _check_alike(key, group)
    return {key: sorted(group, key=lambda cell: cell.run.lr) for key, group in groups.items()}


def choose(tried: Iterable[Cell]) -> Cell | None:
    """Cell with the lowest mean validation error, by the rule of ``selected``; None where every one diverged."""
    finite = [cell for cell in tried if cell.mean("test_error") < float("inf")]
    return min(finite, key=lambda c: (c.mean("test_error"), c.mean("test_loss"), c.run.lr), default=None)


def key_of(run: Run) -> Key:
    """The values of ``BY``; a data set counts under the name of the one it was split from.

    Examples:
        >>> key_of(Run(experiment="x", dataset="pie-tune", model="mlp", method="OLM", method_args={"group_size": 16},
        ...            lr=0.1, epochs=1, batch_size=1))
        ('pie', 'sgd', 'mlp', (), 'OLM', (('group_size', 16),))
    """  # fmt: skip
    dataset, *others = (getattr(run, field) for field in BY)
    return dataset.replace("-tune", ""), *others


def _check_alike(key: Key, group: Sequence[Cell]) -> None:
    first = group[0].run.to_json()
    for cell in group[1:]:
        other = cell.run.to_json()
        differ = [name for name in first if name not in {"lr", "seed"} and first[name] != other[name]]
        if differ:
            raise UserError(f"runs of {_words(key)} differ in {', '.join(differ)} too. Keep the records of one kind.")


def _incomplete(missing: Sequence[str]) -> str:
    if not missing:
        return "no learning rate to select: nothing is recorded. Run the experiment that chooses it first."
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    runs = "1 run is" if len(missing) == 1 else f"{len(missing)} runs are"
    return f"no learning rate to select: {runs} missing: {', '.join(missing[:_NAMED])}{more}. Run them first."


def _words(key: Key) -> str:
    return ", ".join(f"{field} {item}" for field, item in zip(BY, key, strict=True) if item != ())
