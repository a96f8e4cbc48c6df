"""Writes one layout's report: its kind decides the text, and whether there is a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orthonorm.paper.records import Record
from orthonorm.paper.reports.cost import cost_text
from orthonorm.paper.reports.curves import draw_errors
from orthonorm.paper.reports.errors_text import errors_text
from orthonorm.paper.reports.grouping import place
from orthonorm.paper.reports.layouts import Layout
from orthonorm.paper.reports.rates import rates_text


def write_layout(name: str, layout: Layout, variant: str, records: Sequence[Record], folder: Path) -> list[Path]:
    """Write ``report.md`` and the figure, if the layout has one; returns the paths, the text first."""
    pictures: list[Path] = []
    if layout.kind == "errors":
        placed = place(layout, variant, records)
        pictures = draw_errors(placed, folder / "errors")
        text = errors_text(name, placed, [path.name for path in pictures if path.suffix == ".png"])
    elif layout.kind == "rates":
        text = rates_text(name, layout, variant, records)
    else:
        text = cost_text(name, layout, variant, records)
    markdown = folder / "report.md"
    markdown.write_text(text, encoding="utf-8")
    return [markdown, *pictures]
