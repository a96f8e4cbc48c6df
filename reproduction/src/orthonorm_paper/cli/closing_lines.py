"""The last lines of `orthonorm-paper run`: how the runs ended, their errors, and the next command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orthonorm_paper.records.cells import Cell, best, cells
from orthonorm_paper.records.counting import counted
from orthonorm_paper.records.files import STOPPED, Record
from orthonorm_paper.records.run import Run

_DEFAULT = Path("results")


def ending(name: str, runs: Sequence[Run], records: Sequence[Record], results: Path) -> list[str]:
    """Lines to print after a sweep.

    Args:
        name: the experiment.
        runs: what was to be run.
        records: what is recorded of it.
        results: folder of the results.
    """
    outcomes = [record.outcome for record in records]
    counts = ", ".join(f"{outcomes.count(word)} {word}" for word in dict.fromkeys(outcomes))
    missing = len(runs) - len(records)
    of_all = f"{len(records)} of {counted(len(runs), 'run')} recorded in {results / name}: {counts or 'none'}"
    lines = [of_all + (f"; {missing} not begun" if missing else ""), *_errors(records)]
    where = "" if results == _DEFAULT else f" --results {results}"
    again = missing or STOPPED in outcomes
    return [*lines, f"next: orthonorm-paper {'run' if again else 'report'} {name}{where}"]


def _errors(records: Sequence[Record]) -> list[str]:
    """Test errors, a line for each data set and network."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells(record for record in records if record.outcome != STOPPED):
        run = cell.run
        size = "".join(f" {name} {value}" for name, value in run.model_args)
        groups.setdefault(f"{run.dataset}, {run.model}{size}, batch {run.batch_size}", []).append(cell)
    lines = [f"test error in % on {place}: {_best_of_each(own)}" for place, own in groups.items()]
    note = "(mean over the seeds, of several rates the one with the lowest training loss)"
    return [*lines, note] if lines else []


def _best_of_each(own: Sequence[Cell]) -> str:
    methods: dict[str, list[Cell]] = {}
    for cell in own:
        arguments = "".join(f" {name} {value}" for name, value in cell.run.method_args)
        methods.setdefault(cell.run.method + arguments, []).append(cell)
    texts = []
    for method, tried in methods.items():
        top = best(tried, "train_loss")
        texts.append(f"{method} diverged" if top is None else f"{method} {top.text('test_error', 2)}")
    return ", ".join(texts)
