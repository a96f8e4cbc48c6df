"""Table, sentences and figure of the demo: orthogonal weights beside every initialization of the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from orthonorm_paper.records.cells import DASH, Cell, best, cells
from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.figures.losses import COLOURS, draw_legend, draw_loss, panels, save_figure

from .markdown import budget, circumstances, escape, table
from .paired import BASELINES, ORTHOGONAL, lower, standing


class Recorded(NamedTuple):
    """By how many points of test error orthogonal weights are lower, with its 95% interval."""

    seeds: int
    mean: float
    low: float
    high: float


# What the committed records say of this comparison; a test compares it with them.
RECORDED = Recorded(seeds=10, mean=1.36, low=0.80, high=1.92)

COLUMNS = ("method", "learning rate", "train loss", "test error, %", "orthogonality error", "seconds")


def table_rows(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """A row for each method and learning rate: means and standard deviations over the seeds, as texts."""
    return [_row(cell) for cell in _sorted_cells(records)]


def _sorted_cells(records: Sequence[Record]) -> list[Cell]:
    def order(cell: Cell) -> tuple[bool, str, float]:
        return not cell.run.method.startswith("plain"), cell.run.method, cell.run.lr

    return sorted(cells(records), key=order)


def _row(cell: Cell) -> tuple[str, ...]:
    errors = [e for r in cell.records if (e := r.last("orthogonality_error")) is not None]
    seconds = sum(record.seconds for record in cell.records) / len(cell.records)
    return (
        cell.run.method,
        f"{cell.run.lr:g}",
        cell.text("train_loss", 3),
        cell.text("test_error", 1),
        f"{max(errors):.1e}" if errors else DASH,
        f"{seconds:.1f}",
    )


def headline(records: Sequence[Record]) -> list[str]:
    """Orthogonal weights against the best initialization of the baseline, and against what is recorded with ten seeds.

    A method stands at the learning rate with its lowest mean final training loss. The baseline is the initialization
    with the lowest mean test error there: a choice on the test set, which favours the baseline.
    """
    chosen = standing(records)
    baselines = [cell for label, cell in chosen.items() if label in BASELINES and cell is not None]
    plain, own = best(baselines, "test_error"), chosen.get(ORTHOGONAL)
    if plain is None or own is None:
        return ["No comparison: every run of one side diverged or is missing."]
    verdict = lower(own, plain)
    mean = plain.mean("test_error") - own.mean("test_error")
    lines = [
        f"Orthogonal weights at learning rate {own.run.lr:g}: test error {own.text('test_error', 1)} %. "
        f"Best baseline ({plain.run.method} at {plain.run.lr:g}): {plain.text('test_error', 1)} %.",
        f"Orthogonal weights are lower by {verdict.difference} points ({verdict.seeds} seeds, 95% interval).",
        f"Recorded with {RECORDED.seeds} seeds: lower by {RECORDED.mean:+.2f} points, 95% interval "
        f"{RECORDED.low:+.2f} to {RECORDED.high:+.2f}.",
    ]
    if not RECORDED.low <= mean <= RECORDED.high:
        lines.append("The two disagree: the mean measured here lies outside the recorded interval.")
    return lines


def write_demo(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write ``demo.md`` and ``demo.png``; returns their paths."""
    rows = table_rows(records)
    lines = [
        "# Orthogonal weights against the baseline, 8 hidden layers of 100 ReLU units",
        "",
        *table(COLUMNS, [[escape(cell) for cell in row] for row in rows]),
        "",
        *(line for text in headline(records) for line in (escape(text), "")),
        *(f"- {escape(line)}" for line in circumstances(records)),
        "- Mean ± standard deviation over the seeds; train loss is the mean over the last epoch; the "
        "orthogonality error is the largest |W Wᵀ - I| of all seeds (for plain: how far from "
        "orthonormal its weights are); seconds are those of the training steps of one run.",
        "- In the picture, the mean of the seeds and, shaded, their range; a cross where a seed diverged.",
        "",
        "![training loss](demo.png)",
        "",
    ]
    markdown = folder / "demo.md"
    markdown.write_text("\n".join(lines), encoding="utf-8")
    return [markdown, *_figure(records, folder / "demo")]


def _figure(records: Sequence[Record], stem: Path) -> list[Path]:
    groups = _sorted_cells(records)
    rates = sorted({cell.run.lr for cell in groups})
    figure, axes = panels([f"learning rate {lr:g}" for lr in rates], budget(records), width=4.2)
    methods = list(dict.fromkeys(cell.run.method for cell in groups))
    for axis, lr in zip(axes, rates, strict=True):
        for cell in groups:
            if cell.run.lr == lr:
                colour = COLOURS[methods.index(cell.run.method) % len(COLOURS)]
                draw_loss(axis, cell, cell.run.method, {"color": colour})
        draw_legend(axis, 7.0)
    return save_figure(figure, stem, ("png",))
