"""All tables of the paper in one report: Markdown and one HTML page, a dash where nothing was run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from orthonorm_paper.records.cells import DASH
from orthonorm_paper.records.files import Record
from orthonorm_paper.records.run import Run
from orthonorm_paper.records.stability import edges
from orthonorm_paper.reports.tables.layouts import label_of

from .markdown import escape, table
from .paper_numbers import paper_numbers

TITLE = "The paper's tables and figures, and ours"
# Experiments whose best learning rates may be at an edge, and why; report.md prints it beside each.
STOP_ON_PURPOSE = {
    "demo": "the demo shows two learning rates on purpose; `headline` has more",
    "headline-avx2": "runs the learning rates again that `headline` chose",
}
_INTRODUCTION = (
    "Every figure of ours comes from the records of the runs alone, and stands with its data set, budget and number "
    "of seeds. What was not run has a dash and the command that runs it."
)


# Writes the Markdown and the pictures of some records into a folder; the Markdown comes first.
Writer = Callable[[Sequence[Record], Path], list[Path]]


@dataclass(frozen=True)
class Section:
    """What one section of the overview shows.

    Attributes:
        name: of the section and of its folder; the experiment's, or what several that share a table are called.
        variant: one of ``layouts.FULL``, ``REDUCED``, ``SYNTHETIC``.
        experiments: whose records it shows.
        write: writes it.
        without_records: its text where nothing was recorded: what the paper says, and dashes. None for a reduced or
            synthetic experiment, which then has no place.
    """

    name: str
    variant: str
    experiments: tuple[str, ...]
    write: Writer
    without_records: Callable[[], str] | None = None


def overview(
    sections: Sequence[tuple[Section, str | None]], records: Sequence[Record] = (), first: Sequence[str] = ()
) -> str:
    """Markdown of all sections, the paper's statements without a run, and the learning rates that are at an edge.

    Each section comes with its text, or None where nothing was recorded. ``first`` are lines that come before them.
    """
    lines = [f"# {TITLE}", "", _INTRODUCTION, "", *first]
    for section, text in sections:
        if text is not None:
            lines += [_nested(text, section.name), ""]
        elif section.without_records is not None:
            commands = ", ".join(f"`orthonorm-paper run {name}`" for name in section.experiments)
            lines += [_nested(section.without_records(), section.name), "", f"{DASH} not run: {commands}", ""]
    return "\n".join([*lines, *_without_run(records), *_edges(records)])


def _edges(records: Sequence[Record]) -> list[str]:
    """Table of the best learning rates that are the lowest or the highest tried, for which a wider grid is open."""
    rows = sorted(
        {
            (
                run.experiment,
                run.model,
                label_of(run),
                _network(run),
                f"{run.lr:g}",
                side,
                STOP_ON_PURPOSE.get(run.experiment, DASH),
            )
            for run, side in edges(records)
        }
    )
    if not rows:
        return []
    return [
        "## Best learning rates at an edge",
        "",
        "Of these methods the learning rate with the lowest mean final training loss is the lowest or the highest that "
        "ran, so that another may be better. Methods that never get below 90% of the loss of guessing are left out.",
        "",
        *table(
            ("experiment", "network", "method", "arguments", "best learning rate", "of those that ran", "why"),
            [tuple(map(escape, row)) for row in rows],
        ),
        "",
    ]


def _without_run(records: Sequence[Record]) -> list[str]:
    """What the paper says and no table judges, with the commands of what would show it and is not recorded."""
    there = {record.run.experiment for record in records}
    rows = []
    for entry in paper_numbers()["without_run"]:
        missing = [name for name in entry["experiments"] if name not in there]
        if missing:
            rows.append((escape(entry["text"]), ", ".join(f"`orthonorm-paper run {name}`" for name in missing)))
    if not rows:
        return []
    return ["## Statements without a run", "", *table(("the paper says", "what would show it"), rows), ""]


def _network(run: Run) -> str:
    given = {**run.model_arguments, **({} if run.model != "mlp" else {"batch": run.batch_size})}
    return ", ".join(f"{name} {value}" for name, value in given.items())


def _nested(text: str, folder: str) -> str:
    """A report one level of headings down, its pictures found from the folder above."""
    deeper = re.sub(r"^#", "##", text.rstrip("\n"), flags=re.MULTILINE)
    return re.sub(r"^!\[([^\]]*)\]\(", rf"![\1]({folder}/", deeper, flags=re.MULTILINE)
