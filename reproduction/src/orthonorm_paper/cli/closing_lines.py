"""The last lines of `orthonorm-paper run`: how the runs ended, their errors, and the next command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from orthonorm_paper.records.cells import Cell, best, cells
from orthonorm_paper.records.counting import counted
from orthonorm_paper.records.files import STOPPED, Record
from orthonorm_paper.records.run import Run
from orthonorm_paper.records.stability import complete

_DEFAULT = Path("results")


def ending(
    name: str, runs: Sequence[Run], records: Sequence[Record], results: Path, given: Sequence[str] = ()
) -> list[str]:
    """Lines to print after a sweep.

    Args:
        name: the experiment.
        runs: what was to be run.
        records: what is recorded of it.
        results: folder of the results.
        given: the experiment as it was typed and the options that decide which runs these are and find their data;
            left out, the name alone.
    """
    outcomes = [record.outcome for record in records]
    counts = ", ".join(f"{outcomes.count(word)} {word}" for word in dict.fromkeys(outcomes))
    missing = len(runs) - len(records)
    of_all = f"{len(records)} of {counted(len(runs), 'run')} recorded in {results / name}: {counts or 'none'}"
    lines = [of_all + (f"; {missing} not begun" if missing else ""), *_errors(records)]
    where = "" if results == _DEFAULT else f" --results {shlex.quote(str(results))}"
    again = missing or STOPPED in outcomes
    command = f"run {shlex.join(given or [name])}" if again else f"report {name}"
    return [*lines, f"next: orthonorm-paper {command}{where}"]


def repeated(
    data: Path | None,
    only: Sequence[str] | None = None,
    precision: str | None = None,
    learning_rates: str | None = None,
    epochs: int | None = None,
    seeds: int | None = None,
) -> list[str]:
    """Options of `orthonorm-paper run` as a hint types them again, those that were not given left out.

    Examples:
        >>> repeated(Path("files"), ["method=OLM"], seeds=5)
        ['--data', 'files', '--seeds', '5', '--only', 'method=OLM']
    """
    options = {"data": data, "precision": precision, "learning-rates": learning_rates, "epochs": epochs, "seeds": seeds}
    there = [part for word, value in options.items() if value is not None for part in (f"--{word}", str(value))]
    return [*there, *(part for condition in only or () for part in ("--only", condition))]


def _errors(records: Sequence[Record]) -> list[str]:
    """Test errors, a line for each data set and network."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells(record for record in records if record.outcome != STOPPED):
        run = cell.run
        size = "".join(f" {name} {value}" for name, value in run.model_args)
        groups.setdefault(f"{run.dataset}, {run.model}{size}, batch {run.batch_size}", []).append(cell)
    lines = [f"test error in % on {place}: {_best_of_each(own)}" for place, own in groups.items()]
    note = "(mean over the seeds, of several learning rates the one with the lowest training loss)"
    return [*lines, note] if lines else []


def _best_of_each(own: Sequence[Cell]) -> str:
    methods: dict[str, list[Cell]] = {}
    for cell in own:
        arguments = "".join(f" {name} {value}" for name, value in cell.run.method_args)
        methods.setdefault(cell.run.method + arguments, []).append(cell)
    texts = []
    for method, tried in methods.items():
        # While no learning rate has every seed, the best of those there are.
        top = best(complete(tried) or tried, "train_loss")
        texts.append(f"{method} diverged" if top is None else f"{method} {top.text('test_error', 2)}")
    return ", ".join(texts)
