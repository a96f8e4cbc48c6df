"""Layouts: how the paper shows an experiment, as `paper_numbers.toml` says it, and where a record belongs in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orthonorm_paper.records.run import Run
from orthonorm_paper.reports.paper_numbers import paper_numbers

# An experiment at the paper's size, at a reduced one, and on synthetic data: said wherever it is shown.
FULL, REDUCED, SYNTHETIC = "full", "reduced", "synthetic"
# What a title adds for each.
VARIANTS = {FULL: "", REDUCED: ", at a reduced size", SYNTHETIC: ", on synthetic data"}


@dataclass(frozen=True)
class Row:
    """A line of a table: the paper's numbers for one method, and where ours are found.

    Attributes:
        label: of the runs that belong here, see ``label_of``.
        title: in the paper's words; the label where it is empty.
        model: network of the runs; "" where the layout has one.
        paper: ``[mean, deviation]`` or ``[mean]`` for each column.
        reach: epoch in which the paper reaches plain's final error, for each column.
        seconds: per iteration, in the table of costs.
        says: what the paper says where it gives no number.
        only_paper: never ours to run.
    """

    label: str
    title: str = ""
    model: str = ""
    paper: Mapping[str, Sequence[float]] = dataclasses.field(default_factory=dict)
    reach: Mapping[str, int] = dataclasses.field(default_factory=dict)
    seconds: float | None = None
    says: str = ""
    only_paper: bool = False


@dataclass(frozen=True)
class Layout:
    """A table or figure of the paper, with its claims. Fields as in ``paper_numbers.toml``."""

    kind: str
    title: str
    experiments: Sequence[str]
    the_paper: str
    reduced: Sequence[str] = ()
    table: str = ""
    figure: str = ""
    panels: str = "columns"
    field: str = "test_error"
    measured: str = ""
    seeds: int = 1
    by: str = "dataset"
    dataset: str = ""
    model: str = ""
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rows: Sequence[Row] = ()
    claims: Sequence[Mapping[str, Any]] = ()


def layouts() -> dict[str, Layout]:
    """Every layout by the name of its first experiment's table, in the paper's order."""
    found = {}
    for name, entry in paper_numbers()["layouts"].items():
        rows = [Row(**row) for row in entry.get("rows", [])]
        found[name] = Layout(**(entry | {"rows": rows}))
    return found


def names(layout: Layout) -> dict[str, str]:
    """Experiments that a layout shows, each with its variant: one of FULL, REDUCED, SYNTHETIC.

    Examples:
        >>> names(layouts()["vgg"])
        {'vgg': 'full', 'vgg-5k': 'reduced', 'vgg-synthetic': 'synthetic'}
    """
    full = dict.fromkeys(layout.experiments, FULL)
    reduced = dict.fromkeys(layout.reduced, REDUCED)
    return full | reduced | {f"{name}-synthetic": SYNTHETIC for name in full}


def label_of(run: Run) -> str:
    """Label of a run in the paper's figures: its method, with what distinguishes it.

    A group size is appended with a dash, "centred" or "uncentred" where the run says so, "+batch" where the network
    normalises its batches.

    Examples:
        >>> given = dict(experiment="x", dataset="pie", model="pie-mlp", lr=0.1, epochs=1, batch_size=256)
        >>> label_of(Run(**given, method="OLM-scale", method_args={"group_size": 128}))
        'OLM-scale-128'
        >>> label_of(Run(**given, method="WN", model_args={"batch_norm": True}))
        'WN+batch'
    """
    arguments = run.method_arguments
    label = run.method
    if "group_size" in arguments:
        label += f"-{arguments.pop('group_size')}"
    if "center" in arguments:
        label += "-centred" if arguments.pop("center") else "-uncentred"
    label += "".join(f", {name} {value}" for name, value in arguments.items())
    return label + ("+batch" if run.model_arguments.get("batch_norm") else "")


def column_of(layout: Layout, run: Run) -> str:
    """Key of the column that a run belongs to; a data set that the paper has not is a column of its own."""
    if layout.by == "model":
        return run.model
    return run.dataset.removesuffix("-synthetic")


def belongs(layout: Layout, row: Row, run: Run) -> bool:
    """Whether a run is shown in a row."""
    model = row.model or layout.model
    return not row.only_paper and row.label == label_of(run) and model in ("", run.model)
