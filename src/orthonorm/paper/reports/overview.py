"""All tables of the paper in one report: Markdown and one HTML page, a dash where nothing was run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orthonorm.paper.reports.layouts import REDUCED, SYNTHETIC

TITLE = "The paper's tables and figures, and ours"
_INTRODUCTION = (
    "Every figure of ours comes from the records of the runs alone, and stands with its data set, budget and number "
    "of seeds. What was not run has a dash and the command that runs it."
)


@dataclass(frozen=True)
class Section:
    """One experiment's report.

    Attributes:
        name: the experiment, or what several that share a table are called.
        what: its title in words.
        variant: one of ``layouts.FULL``, ``REDUCED``, ``SYNTHETIC``.
        command: runs it.
        text: its Markdown; None where nothing was recorded.
        folder: of its pictures, below that of the report.
    """

    name: str
    what: str
    variant: str
    command: str
    text: str | None
    folder: str


def overview(sections: list[Section]) -> str:
    """Markdown of all sections: those with records, then what was not run.

    A synthetic or reduced experiment that was not run is left out: the paper has no place for it.
    """
    lines = [f"# {TITLE}", "", _INTRODUCTION, ""]
    for section in sections:
        if section.text is not None:
            lines += [_nested(section.text, section.folder), ""]
    absent = [s for s in sections if s.text is None and s.variant not in (REDUCED, SYNTHETIC)]
    if absent:
        lines += ["## Not run", ""]
        lines += [f"- {section.what}: – (`{section.command}`)" for section in absent]
        lines.append("")
    return "\n".join(lines)


def _nested(text: str, folder: str) -> str:
    """A report one level of headings down, its pictures found from the folder above."""
    deeper = re.sub(r"^#", "##", text.rstrip("\n"), flags=re.MULTILINE)
    return re.sub(r"^!\[([^\]]*)\]\(", rf"![\1]({folder}/", deeper, flags=re.MULTILINE)
