"""All tables of the paper in one report: Markdown and one HTML page, a dash where nothing was run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from orthonorm_paper.records.cells import DASH
from orthonorm_paper.reports.tables.layouts import FULL

TITLE = "The paper's tables and figures, and ours"
_INTRODUCTION = (
    "Every figure of ours comes from the records of the runs alone, and stands with its data set, budget and number "
    "of seeds. What was not run has a dash and the command that runs it."
)


@dataclass(frozen=True)
class Section:
    """One experiment's report.

    Attributes:
        name: the experiment, or what several that share a table are called; also the folder of its pictures.
        variant: one of ``layouts.FULL``, ``REDUCED``, ``SYNTHETIC``.
        experiments: whose records it shows.
        text: its Markdown: with records, or the paper's numbers alone.
        recorded: whether there are records.
    """

    name: str
    variant: str
    experiments: Sequence[str]
    text: str
    recorded: bool


def overview(sections: Sequence[Section]) -> str:
    """Markdown of all sections. A reduced or synthetic experiment that was not run has no place."""
    lines = [f"# {TITLE}", "", _INTRODUCTION, ""]
    for section in sections:
        if section.recorded:
            lines += [_nested(section.text, section.name), ""]
        elif section.variant == FULL:
            commands = ", ".join(f"`orthonorm-paper run {name}`" for name in section.experiments)
            lines += [_nested(section.text, section.name), "", f"{DASH} not run: {commands}", ""]
    return "\n".join(lines)


def _nested(text: str, folder: str) -> str:
    """A report one level of headings down, its pictures found from the folder above."""
    deeper = re.sub(r"^#", "##", text.rstrip("\n"), flags=re.MULTILINE)
    return re.sub(r"^!\[([^\]]*)\]\(", rf"![\1]({folder}/", deeper, flags=re.MULTILINE)
