"""Figures of errors against epochs, as the paper draws them: training solid, test dashed with triangles."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from orthonorm_paper.records.cells import Cell
from orthonorm_paper.records.files import DIVERGED
from orthonorm_paper.reports.markdown import budget
from orthonorm_paper.reports.tables.layouts import SYNTHETIC
from orthonorm_paper.reports.tables.placement import Placed

from .losses import COLOURS, draw_legend, panels, save_figure
from .mean_curves import curve, mean_curve

# Both are top-1, whatever the table shows.
TRAIN, TEST = "train_error", "test_error"
# What the two kinds of a line look like, and how many triangles a dashed one carries.
SOLID = {"linestyle": "-", "linewidth": 1.1}
DASHED = {"linestyle": "--", "linewidth": 1.0, "marker": "^", "markersize": 3.0}
_TRIANGLES = 10
# The most methods that a layout has.
_COLOURS = (*COLOURS, "#a6761d", "#b3b300")


def draw_errors(placed: Placed, stem: Path) -> list[Path]:
    """Draw a panel for each column (or for training and test error), a colour for each method.

    Args:
        placed: records in their layout.
        stem: path without extension.

    Returns:
        The paths written, a PNG and an SVG; none where no epoch was recorded.
    """
    layout = placed.layout
    keys = [key for key, records in placed.columns.items() if any(r.epochs for r in records)]
    if not keys:
        return []
    fields = [(TRAIN,), (TEST,)] if layout.panels == "fields" else [(TRAIN, TEST)]
    shown = [(key, group) for key in keys for group in fields]
    titles = [f"({chr(97 + i)}) {_title(placed, *pair)}" for i, pair in enumerate(shown)]
    figure, axes = panels(titles, _foot(placed, len(titles)), width=3.6, height=3.2)
    axes[0].set_ylabel("error, %")
    for axis, (key, group) in zip(axes, shown, strict=True):
        axis.set_yscale("linear")
        for label, colour, cell in _lines(placed, key):
            for number, field in enumerate(group):
                draw_error(axis, cell, field, colour, label if number == 0 else None)
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        draw_legend(axis, 6.0)
    return save_figure(figure, stem)


def draw_error(axis: Axes, cell: Cell, field: str, colour: str, label: str | None) -> None:
    """Mean of an error over the seeds in each epoch; a cross where a run diverged."""
    values = mean_curve(cell.records, field)
    style = SOLID if field == TRAIN else DASHED | {"markevery": max(1, len(values) // _TRIANGLES)}
    axis.plot(range(1, len(values) + 1), values, color=colour, label=label, **style)  # pyright: ignore[reportArgumentType]
    for record in cell.records:
        if record.outcome == DIVERGED:
            own = curve(record, field)
            end = (len(own), own[-1]) if own else (0, 100.0)
            axis.plot(*end, marker="x", color=colour, markersize=5, linestyle="none")


def _lines(placed: Placed, key: str) -> Iterator[tuple[str, str, Cell]]:
    """The cell that stands for each method; all of its cells where every learning rate diverged."""
    for index, row in enumerate(placed.rows):
        found, chosen = placed.cells(key, row), placed.chosen(key, row)
        title = placed.row_title(row)
        for cell in found if chosen is None else [chosen]:
            label = title if len(found) == 1 else f"{title}, learning rate {cell.run.lr:g}"
            yield label, _COLOURS[index % len(_COLOURS)], cell


def _title(placed: Placed, key: str, fields: Sequence[str]) -> str:
    title = placed.column_title(key)
    if len(fields) > 1:
        return title
    return f"{title}: {'training' if fields[0] == TRAIN else 'test'} error"


def _foot(placed: Placed, count: int) -> str:
    synthetic = "Synthetic data. " if placed.variant == SYNTHETIC else ""
    several = any(len(placed.cells(key, row)) > 1 for key in placed.columns for row in placed.rows)
    rate = "of several learning rates the one with the lowest training loss; " if several else ""
    text = (
        f"{synthetic}Solid: training; dashed with triangles: test; mean over the seeds; {rate}{budget(placed.records)}"
    )
    return "\n".join(textwrap.wrap(text, 72 * count))
