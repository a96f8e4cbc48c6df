"""Best learning rates at the edge of what ran: which of them are known, and why they were left there."""

from __future__ import annotations

import tomllib
from importlib.resources import files

from orthonorm_paper.records.run import Run
from orthonorm_paper.reports.tables.layouts import label_of


def edge_name(run: Run) -> str:
    """Name of a kind of run in ``open_edges.toml``: its label and network.

    Examples:
        >>> edge_name(Run(experiment="x", dataset="pie", model="pie-mlp", method="WN", lr=0.1, epochs=1, batch_size=1))
        'WN, pie-mlp'
    """
    return f"{label_of(run)}, {run.model}"


def open_edges() -> dict[str, tuple[str, list[str] | None]]:
    """Reason and names of each experiment in ``open_edges.toml``; None for the names where it stands for all."""
    text = (files("orthonorm_paper.reports") / "open_edges.toml").read_text(encoding="utf-8")
    return {
        experiment: (entry["why"], None if entry["methods"] == "all" else entry["methods"])
        for experiment, entry in tomllib.loads(text).items()
    }


def reason(run: Run) -> str:
    """Why the best learning rate of a kind of run was left at an edge; empty if it is not listed."""
    why, names = open_edges().get(run.experiment, ("", []))
    return why if names is None or edge_name(run) in names else ""
