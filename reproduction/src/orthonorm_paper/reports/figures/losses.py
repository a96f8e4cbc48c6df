"""Figures from records: the same records give the same bytes with the same matplotlib."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orthonorm_paper.records.cells import Cell, best, cells
from orthonorm_paper.records.files import DIVERGED, Record
from orthonorm_paper.records.stability import complete
from orthonorm_paper.reports.markdown import belonging, budget, heading
from orthonorm_paper.reports.paper_numbers import paper_numbers

from .mean_curves import curve

# Identifiers in SVG files are random, and both formats carry a date or a program, unless told not to.
_STYLE: dict[Any, Any] = {"svg.hashsalt": "orthonorm", "svg.fonttype": "path", "font.size": 8.0}
_METADATA: dict[str, dict[str, Any]] = {"png": {"Software": None}, "svg": {"Date": None}}

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f3c8d", "#555555",
           "#000000")  # fmt: skip


def save_figure(figure: Figure, stem: Path, formats: Sequence[str] = ("png", "svg")) -> list[Path]:
    """Write ``stem`` with each extension; returns the paths."""
    paths = []
    for extension in formats:
        path = stem.with_name(f"{stem.name}.{extension}")
        with mpl.rc_context(_STYLE):
            figure.savefig(path, dpi=130, metadata=_METADATA[extension])
        paths.append(path)
    return paths


def panels(titles: Sequence[str], foot: str, *, width: float = 3.2, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    """Figure with a row of panels for training loss against epochs, and its budget at the foot."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(width * len(titles), height), layout="constrained")
        axes = figure.subplots(1, len(titles), squeeze=False)[0].tolist()
        for axis, title in zip(axes, titles, strict=True):
            axis.set(title=title, xlabel="epoch", yscale="log")
            axis.grid(alpha=0.3, linewidth=0.5)
        axes[0].set_ylabel("training loss")
        # Texts of records are no formulas, whatever signs are in them.
        figure.supxlabel(foot, fontsize=6.5, color="#555555", parse_math=False)
    return figure, axes


def draw_legend(axis: Axes, size: float) -> None:
    """Legend of a panel, its labels taken literally."""
    for text in axis.legend(fontsize=size).get_texts():
        text.set_parse_math(False)


def draw_loss(axis: Axes, cell: Cell, label: str, style: Mapping[str, Any], unit: int | float = 1) -> None:
    """Mean training loss of a cell over its seeds, their range shaded; a cross where one diverged.

    ``unit`` is the length of an epoch on the axis.
    """
    curves = [curve(record, "train_loss") for record in cell.records]
    length = max(map(len, curves))
    rows = [[own[i] for own in curves if i < len(own)] for i in range(length)]
    epochs = [unit * number for number in range(1, length + 1)]
    (line,) = axis.plot(epochs, [statistics.fmean(row) for row in rows], label=label, linewidth=1.2, **style)
    if len(curves) > 1 and length:
        low, high = [min(row) for row in rows], [max(row) for row in rows]
        axis.fill_between(epochs, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    for record, own in zip(cell.records, curves, strict=True):
        if record.outcome == DIVERGED:
            end = (unit * len(own), own[-1]) if own else (0, 1.0)
            axis.plot(*end, marker="x", color=line.get_color(), markersize=5, linestyle="none")


def draw_omdsm(records: Sequence[Record], folder: Path) -> list[Path]:
    """Draw each figure of the MNIST comparison that has records: one learning rate after the other, then the best."""
    numbers = paper_numbers()["omdsm"]
    paths: list[Path] = []
    for figure in numbers["figures"]:
        chosen = belonging(records, figure)
        if chosen:
            foot = f"{heading(figure)}. {budget(chosen)}"
            paths += _draw_one(cells(chosen), numbers, foot, folder / f"figure-{figure['number']}")
    return paths


def _draw_one(groups: Sequence[Cell], numbers: Mapping[str, Any], foot: str, stem: Path) -> list[Path]:
    methods = numbers["panels"]
    titles = [f"({letter}) {method}" for letter, method in zip("abc", methods, strict=True)]
    drawn, axes = panels([*titles, "(d) best of each method"], foot)
    plain = _best_of(groups, "plain")
    for axis, method in zip(axes, methods, strict=False):
        for index, rate in enumerate(numbers["rates"]):
            for cell in groups:
                if cell.run.method == method and cell.run.lr == rate:
                    draw_loss(axis, cell, f"{rate:g}", _style(index))
        if plain is not None:
            style = {"color": "black", "linestyle": "--"}
            draw_loss(axis, plain, f"plain, {plain.run.lr:g}", style)
    for index, method in enumerate(numbers["methods"]):
        top = _best_of(groups, method)
        if top is not None:
            draw_loss(axes[-1], top, f"{method}, {top.run.lr:g}", _style(index))
    for axis in axes:
        # An empty legend is a warning.
        if axis.get_legend_handles_labels()[0]:
            draw_legend(axis, 5.5)
    return save_figure(drawn, stem)


def _best_of(groups: Sequence[Cell], method: str) -> Cell | None:
    return best(complete(cell for cell in groups if cell.run.method == method), "train_loss")


def _style(index: int) -> dict[str, str]:
    """Colours in turn; dashed where they begin again."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": "-" if index < len(COLOURS) else "--",
    }
