"""Figure of test error against the learning rate, orthogonal weights beside the baseline: the one that README shows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from orthonorm_paper.records.cells import Cell, cells
from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.markdown import budget, escape
from orthonorm_paper.reports.tables.layouts import label_of

from .losses import COLOURS, save_figure

_FIELD = "test_error"


@dataclass(frozen=True)
class _Panel:
    """One network: its experiment, the title, and the label of the orthogonal weights in the records."""

    experiment: str
    title: str
    orthogonal: str


_PANELS = (
    _Panel("headline", "MLP, 8 hidden layers", "OLM-balanced"),
    _Panel("vgg-5k", "VGG-style network", "OLM"),
)
_BASELINES = {"plain-he": "baseline, He initialization", "plain-orthogonal": "baseline, orthogonal initialization"}
_LABELS = ("orthogonal weights (OLM)", *_BASELINES.values())
_MARKERS = ("o", "s", "^")
# Points of the same learning rate stand side by side, and crosses one above the other.
_ASIDE, _CROSSES = (1.0, 0.95, 1.05), (260.0, 215.0, 175.0)
# The axis ends above 100%, where the crosses are.
_TICKS, _RANGE = (2, 5, 10, 20, 50, 100), (1.7, 320.0)


def draw_learning_rates(records: Sequence[Record], stem: Path) -> list[Path]:
    """Draw a panel for each network, a line for each method; a cross at the top where a seed diverged.

    Args:
        records: those of all experiments.
        stem: path without extension.

    Returns:
        The paths written; none unless each network has records.
    """
    own = [[record for record in records if record.run.experiment == panel.experiment] for panel in _PANELS]
    if not all(own):
        return []
    # A phone shows the picture at half its size, so the text is large.
    with mpl.rc_context({"font.size": 14.0, "axes.titlesize": 14.0}):
        figure = Figure(figsize=(7.4, 4.8), layout="constrained", facecolor="white")
        axes: list[Axes] = figure.subplots(1, len(_PANELS), sharey=True, squeeze=False)[0].tolist()
        for axis, panel, its in zip(axes, _PANELS, own, strict=True):
            _draw(axis, its, panel)
        axes[0].set_ylabel("test error, %")
        lines = [
            Line2D([], [], color=colour, marker=marker, markersize=8, linewidth=2)
            for colour, marker in zip(COLOURS, _MARKERS, strict=False)
        ]
        figure.legend(lines, _LABELS, loc="outside upper center", frameon=False)
    return save_figure(figure, stem)


def learning_rates_text(records: Sequence[Record], picture: str) -> list[str]:
    """Lines of Markdown that show the picture, with what its points are and the budget of each network."""
    lines = [
        "## Test error against the learning rate",
        "",
        f"![Test error against the learning rate: orthogonal weights, and the baseline's initializations]({picture})",
        "",
        "Points show the mean over the seeds in the last epoch, and bars the lowest and the highest seed. A hollow "
        "point is a single seed. A cross is a learning rate at which at least one seed diverged. Points of the same "
        "learning rate stand side by side. OLM in the left panel has groups of equal size (OLM-balanced). The "
        "baseline's third initialization, the paper's, has higher errors and is in the tables.",
        "",
    ]
    for panel in _PANELS:
        own = [record for record in records if record.run.experiment == panel.experiment]
        lines += [f"- {panel.title}: {escape(budget(own))}"]
    return [*lines, ""]


def _draw(axis: Axes, records: Sequence[Record], panel: _Panel) -> None:
    found = cells(records)
    rates: set[float] = set()
    for number, label in enumerate((panel.orthogonal, *_BASELINES)):
        line = sorted((cell for cell in found if label_of(cell.run) == label), key=lambda cell: cell.run.lr)
        rates |= {cell.run.lr for cell in line}
        means = [cell.mean(_FIELD) for cell in line]
        axis.plot(
            [cell.run.lr * _ASIDE[number] for cell in line],
            [mean if math.isfinite(mean) else math.nan for mean in means],
            color=COLOURS[number],
            linewidth=2,
            zorder=2,
        )
        for cell, mean in zip(line, means, strict=True):
            _draw_point(axis, cell, mean, number)
    axis.set(title=panel.title, xlabel="learning rate", xscale="log", yscale="log", ylim=_RANGE)
    axis.set_yticks((*_TICKS, _CROSSES[1]), (*map(str, _TICKS), "diverged"))
    shown: list[float] = []
    for rate in sorted(rates):
        if not shown or rate > 3.9 * shown[-1]:  # room for the numbers
            shown.append(rate)
    axis.set_xticks(shown, [f"{rate:g}" for rate in shown])
    for side in (axis.xaxis, axis.yaxis):
        side.set_minor_locator(NullLocator())
    axis.grid(alpha=0.35, linewidth=0.7)


def _draw_point(axis: Axes, cell: Cell, mean: float, number: int) -> None:
    x, colour, values = cell.run.lr * _ASIDE[number], COLOURS[number], cell.finals(_FIELD)
    if not math.isfinite(mean):
        axis.plot(x, _CROSSES[number], marker="x", color=colour, markersize=9, markeredgewidth=2.5, linestyle="none")
        return
    if len(values) > 1:
        axis.plot([x, x], [min(values), max(values)], color=colour, linewidth=1.6, zorder=1)
    inside = "white" if len(values) == 1 else colour
    style = {"marker": _MARKERS[number], "markersize": 8, "markeredgewidth": 1.8, "markerfacecolor": inside}
    axis.plot(x, mean, color=colour, zorder=3, **style)  # pyright: ignore[reportArgumentType]
