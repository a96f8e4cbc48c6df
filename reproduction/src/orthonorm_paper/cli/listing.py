"""Text of `orthonorm-paper list`: the tables of the paper with their commands, or one experiment in detail."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import torch

from orthonorm_paper.experiments import EXPERIMENTS, Experiment
from orthonorm_paper.experiments.derived.tuned import count
from orthonorm_paper.records.counting import counted
from orthonorm_paper.records.folders import find_record, recorded_ids
from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import describe

COLUMNS = ("command", "data set", "recorded", "what")
ONE = ("data set", "network", "method", "learning rates", "budget", "recorded")


def overview(results: Path) -> list[tuple[str, ...]]:
    """A row of ``COLUMNS`` for each experiment, the paper's tables and figures first."""
    entries = sorted(EXPERIMENTS.values(), key=lambda entry: not entry.shows)
    rows = []
    for entry in entries:
        runs = entry.runs()
        done = count(entry, _recorded(runs, results / entry.name))
        what = f"{entry.shows}: {entry.title}" if entry.shows else entry.title
        data = ", ".join(dict.fromkeys(run.dataset.removesuffix("-tune") for run in runs))
        rows.append((f"orthonorm-paper run {entry.name}", data, f"{done} of {count(entry, runs)}", what))
    return rows


def heading(entry: Experiment, runs: Sequence[Run]) -> list[str]:
    """Lines before the table of one experiment: what it is, its budget, its learning rates and its commands."""
    lines = [f"{entry.title}" + (f" ({entry.shows})" if entry.shows else ""), f"{entry.budget}"]
    if entry.rates_from:
        lines.append(f"{counted(count(entry, runs), 'run')}, each at one of the learning rates below: the one that "
                     f"`orthonorm-paper run {entry.rates_from}` chooses on a validation split")  # fmt: skip
    else:
        lines.append(counted(len(runs), "run"))
    lines += sorted({_training(run) for run in runs})
    return [*lines, f"orthonorm-paper run {entry.name}; orthonorm-paper report {entry.name}"]


def summary(entry: Experiment, runs: Sequence[Run], folder: Path) -> list[tuple[str, ...]]:
    """A row of ``ONE`` for each data set, network, batch and method with its arguments."""
    groups: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        budget = f"{counted(run.epochs, 'epoch')}, batch {run.batch_size}"
        groups.setdefault((run.dataset, _network(run), _method(run), budget), []).append(run)
    rows = []
    for (dataset, network, method, budget), own in groups.items():
        rates = ", ".join(f"{lr:g}" for lr in dict.fromkeys(run.lr for run in own))
        seeds = counted(len({run.seed for run in own}), "seed")
        recorded = f"{count(entry, _recorded(own, folder))} of {count(entry, own)}"
        rows.append((dataset, network, method, rates, f"{budget}, {seeds}", recorded))
    return rows


def fold(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[str, list[str], list[list[str]]]:
    """What every row has in common as a line, and the columns and rows that are left.

    Examples:
        >>> fold(("data set", "method"), [("pie", "WN"), ("pie", "OLM")])
        ('data set: pie', ['method'], [['WN'], ['OLM']])
    """
    common = [i for i in range(len(columns)) if len(rows) > 1 and len({row[i] for row in rows}) == 1]
    kept = [i for i in range(len(columns)) if i not in common]
    line = "; ".join(f"{columns[i]}: {rows[0][i]}" for i in common)
    return line, [columns[i] for i in kept], [[row[i] for i in kept] for row in rows]


def replaced(runs: Iterable[Run]) -> Iterator[str]:
    """A line for each network and method: what the method is and the names of the layers that it replaces."""
    from orthonorm_paper.data.shapes import shape_of
    from orthonorm_paper.methods.replaced_layers import replaced_layers
    from orthonorm_paper.methods.table import method
    from orthonorm_paper.models import build_model

    seen: dict[tuple[str, str], Run] = {}
    for run in runs:
        seen.setdefault((_network(run), _method(run)), run)
    for (network, label), run in seen.items():
        entry = method(run.method, run.model, run.method_arguments)
        line = f"{network}, {label}: {entry.description}"
        if entry.replacement is not None:
            shape, classes = shape_of(run.dataset)
            with torch.device("meta"):
                plain = build_model(run.model, run.model_arguments, shape=shape, classes=classes, start="paper", seed=0)
            choice = entry.replacement.choice(run.model, run.method_arguments)
            names = replaced_layers(run.model, plain, first=entry.replacement.first, layers=choice.layers)
            line += f"; {counted(len(names), 'layer')}: {', '.join(names)}"
        yield line


def states(runs: Iterable[Run], folder: Path) -> Iterator[str]:
    """A line for each run: its id and how it ended."""
    for run in runs:
        record = find_record(folder, run)
        yield f"{run.id}  {'not run' if record is None else record.outcome_text}"


def _recorded(runs: Sequence[Run], folder: Path) -> list[Run]:
    there = recorded_ids(folder)
    return [run for run in runs if run.id in there] if there else []


def _training(run: Run) -> str:
    words = [run.optimizer]
    words += [f"momentum {run.momentum:g}" + (" (Nesterov)" if run.nesterov else "")] if run.momentum else []
    words += ["momentum from zero when the learning rate changes"] if run.restart_momentum else []
    words += [f"weight decay {run.weight_decay:g}"] if run.weight_decay else []
    return ", ".join([*words, describe(run.schedule), f"augmentation {run.augment}", run.precision])


def _network(run: Run) -> str:
    return run.model + _arguments(run.model_arguments)


def _method(run: Run) -> str:
    return run.method + _arguments(run.method_arguments)


def _arguments(arguments: dict) -> str:
    return f" ({', '.join(f'{name} {value}' for name, value in arguments.items())})" if arguments else ""
