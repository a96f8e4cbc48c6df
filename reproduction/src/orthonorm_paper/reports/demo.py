"""Table, sentence and figure of the demo: OLM beside every start of plain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orthonorm_paper.records.cells import DASH, Cell, best, cells
from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.figures.losses import COLOURS, draw_legend, draw_loss, panels, save_figure

from .markdown import budget, circumstances, escape, table

COLUMNS = ("method", "rate", "train loss", "test error, %", "orthogonality error", "seconds")


def table_rows(records: Sequence[Record]) -> list[tuple[str, ...]]:
    """A row for each method and rate: means and deviations over the seeds, as texts."""
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


def headline(records: Sequence[Record]) -> str:
    """OLM against the best of plain, said as it is.

    Both sides are represented by their cell with the lowest mean test error: a choice on the test
    set, which favours plain, the side with more cells.
    """
    groups = cells(records)
    plain = best((c for c in groups if c.run.method.startswith("plain")), "test_error")
    olm = best((c for c in groups if c.run.method.startswith("OLM")), "test_error")
    if plain is None or olm is None:
        return "No comparison: every run of one side diverged or is missing."
    # In the digits shown, or the difference would not add up for who reads it.
    ours, theirs = round(olm.mean("test_error"), 1), round(plain.mean("test_error"), 1)
    pairs = list(zip(olm.finals("test_error"), plain.finals("test_error"), strict=False))
    better = sum(a < b for a, b in pairs)
    word = "lower" if ours < theirs else "higher" if ours > theirs else "the same"
    gap = f"{abs(ours - theirs):.1f} points {word}" if ours != theirs else "the same"
    return (
        f"{olm.run.method} at rate {olm.run.lr:g}: test error {olm.text('test_error', 1)} %. "
        f"Best plain ({plain.run.method} at rate {plain.run.lr:g}): "
        f"{plain.text('test_error', 1)} %. OLM is {gap}, and lower in {better} of {len(pairs)} "
        "seeds. Each side is shown at the cell with its lowest test error."
    )


def write_demo(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write ``demo.md`` and ``demo.png``; returns their paths."""
    rows = table_rows(records)
    lines = [
        "# OLM against plain, 8 hidden layers of 100 ReLU units",
        "",
        *table(COLUMNS, [[escape(cell) for cell in row] for row in rows]),
        "",
        escape(headline(records)),
        "",
        *(f"- {escape(line)}" for line in circumstances(records)),
        "- Mean ± deviation over the seeds; train loss is the mean over the last epoch; the "
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
    figure, axes = panels([f"rate {lr:g}" for lr in rates], budget(records), width=4.2)
    methods = list(dict.fromkeys(cell.run.method for cell in groups))
    for axis, lr in zip(axes, rates, strict=True):
        for cell in groups:
            if cell.run.lr == lr:
                colour = COLOURS[methods.index(cell.run.method) % len(COLOURS)]
                draw_loss(axis, cell, cell.run.method, {"color": colour})
        draw_legend(axis, 7.0)
    return save_figure(figure, stem, ("png",))
