"""Writes one layout's report: its kind decides the text, and whether there is a figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.figures.curves import draw_errors
from orthonorm_paper.reports.tables.cost import cost_text
from orthonorm_paper.reports.tables.layouts import Layout
from orthonorm_paper.reports.tables.learning_rates import rates_text
from orthonorm_paper.reports.tables.placement import place
from orthonorm_paper.reports.tables.test_error import errors_text


def write_layout(name: str, layout: Layout, variant: str, records: Sequence[Record], folder: Path) -> list[Path]:
    """Write ``report.md`` and the figure, if the layout has one; returns the paths, the text first."""
    pictures: list[Path] = []
    if layout.kind == "errors":
        pictures = draw_errors(place(layout, variant, records), folder / "errors")
    markdown = folder / "report.md"
    shown = [path.name for path in pictures if path.suffix == ".png"]
    markdown.write_text(layout_text(name, layout, variant, records, shown), encoding="utf-8")
    return [markdown, *pictures]


def layout_text(
    name: str, layout: Layout, variant: str, records: Sequence[Record], pictures: Sequence[str] = ()
) -> str:
    """Markdown of a layout; without records the paper's numbers with dashes beside them."""
    if layout.kind == "errors":
        return errors_text(name, place(layout, variant, records), pictures)
    if layout.kind == "rates":
        return rates_text(name, layout, variant, records)
    return cost_text(name, layout, variant, records)
