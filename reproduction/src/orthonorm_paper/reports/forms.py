"""The Riemannian methods in three forms: right at a constant and at a halved learning rate, and as released."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from orthonorm_paper.records.cells import DASH, Cell, cells
from orthonorm_paper.records.files import DIVERGED, Record
from orthonorm_paper.records.stability import is_stable
from orthonorm_paper.reports.claims.mnist import judge
from orthonorm_paper.reports.claims.rule import Verdict, verdict_table
from orthonorm_paper.reports.figures.losses import COLOURS, draw_legend, draw_loss, panels, save_figure

from .markdown import circumstances, escape, table
from .paper_numbers import paper_numbers

# The cells of Figure 12 of the paper, which both experiments ran.
DEPTH, BATCH = 4, 256
METHODS = ("EI+QR", "CI+QR", "CayT", "QR")
RELEASED = "-released"
# Experiment, and what the label of a method ends in, of each form.
FORMS: Mapping[str, tuple[str, str]] = {
    "right, constant": ("omdsm-5k-constant", ""),
    "right, halved": ("omdsm-5k", ""),
    "as released": ("omdsm-5k", RELEASED),
}
# The learning rate that the picture shows.
SHOWN = 0.1


def write_forms(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write ``report.md`` and the figure of the three forms; returns the paths, the text first."""
    markdown = folder / "report.md"
    markdown.write_text(forms_text(records), encoding="utf-8")
    return [markdown, *_draw(_ours(records), folder / "forms")]


def forms_text(records: Sequence[Record]) -> str:
    """Markdown of the three forms: losses at every learning rate, and the paper's statements for each form."""
    ours = _ours(records)
    rates = sorted({cell.run.lr for cell in ours if cell.run.method in METHODS})
    heading = ("method", "form", "seeds", *(f"{lr:g}" for lr in rates))
    rows = [(method, form, *_line(ours, method, form, rates)) for method in METHODS for form in FORMS]
    return "\n".join(
        [
            "# riemannian-forms: the Riemannian methods in three forms",
            "",
            *(f"- {escape(line)}" for line in circumstances([record for cell in ours for record in cell.records])),
            f"- {DEPTH} hidden layers, batch {BATCH}. As released, gradients are never set to zero and the weights "
            "keep the first learning rate.",
            "",
            "Training loss of the last epoch, mean over the seeds, by learning rate. In brackets the lowest mean of "
            "any epoch, where the last is above twice that; the number of stable runs, where not all are:",
            "",
            *table(heading, rows),
            "",
            f"![training loss of the three forms at a learning rate of {SHOWN:g}](forms.png)",
            "",
            *_verdicts(records),
            "",
        ]
    )


def _ours(records: Sequence[Record]) -> list[Cell]:
    wanted = [r for r in records if (r.run.model_arguments.get("hidden_layers"), r.run.batch_size) == (DEPTH, BATCH)]
    return cells(wanted)


def _find(ours: Sequence[Cell], method: str, form: str, lr: float) -> Cell | None:
    experiment, ending = FORMS[form]
    wanted = (experiment, method + ending, lr)
    return next((c for c in ours if (c.run.experiment, c.run.method, c.run.lr) == wanted), None)


def _line(ours: Sequence[Cell], method: str, form: str, rates: Sequence[float]) -> tuple[str, ...]:
    found = [_find(ours, method, form, lr) for lr in rates]
    counts = sorted({len(cell.seeds) for cell in found if cell is not None})
    seeds = DASH if not counts else f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
    return (seeds, *(DASH if cell is None else _text(cell) for cell in found))


def _text(cell: Cell) -> str:
    means = _mean_losses(cell)
    notes = []
    if means and not cell.diverged and means[-1] > 2 * min(means):
        notes.append(f"lowest {min(means):.3g}")
    stable = sum(map(is_stable, cell.records))
    if stable < len(cell.records):
        notes.append(f"{stable} of {len(cell.records)} stable")
    return cell.mean_text("train_loss") + (f" ({', '.join(notes)})" if notes else "")


def _mean_losses(cell: Cell) -> list[float]:
    """Mean over the seeds of each epoch's loss, as far as all of them came."""
    curves = [[line.train_loss for line in record.epochs if line.train_loss is not None] for record in cell.records]
    return [statistics.fmean(values) for values in zip(*curves, strict=False)]


def _verdicts(records: Sequence[Record]) -> list[str]:
    rows, unrun, count = [], [], 0
    for claim in paper_numbers()["omdsm"]["claims"]:
        if claim["method"] not in METHODS:
            continue
        for form, (experiment, ending) in FORMS.items():
            own = [r for r in records if r.run.experiment == experiment and r.run.batch_size == BATCH]
            verdict = judge({**claim, "method": claim["method"] + ending}, own, DEPTH)
            count += 1
            if verdict.seeds:
                rows.append((claim["text"], form, *_answer(verdict)))
            else:
                unrun.append(verdict)
    columns = ("the paper says", "form", "verdict", "seeds", "mean difference (95% interval)")
    return verdict_table(columns, rows, unrun, count)


def _answer(verdict: Verdict) -> tuple[str, str, str]:
    return f"**{verdict.answer}**", str(verdict.seeds), verdict.difference or DASH


def _draw(ours: Sequence[Cell], stem: Path) -> list[Path]:
    figure, axes = panels([*METHODS], f"learning rate {SHOWN:g}, mean of the seeds and their range", width=2.9)
    plain = [c for c in ours if (c.run.experiment, c.run.method, c.run.lr) == ("omdsm-5k", "plain", SHOWN)]
    for axis, method in zip(axes, METHODS, strict=True):
        for number, form in enumerate(FORMS):
            cell = _find(ours, method, form, SHOWN)
            if cell is not None and any(r.epochs or r.outcome == DIVERGED for r in cell.records):
                draw_loss(axis, cell, form, {"color": COLOURS[number]})
        for cell in plain:
            draw_loss(axis, cell, "plain, halved", {"color": "black", "linestyle": "--"})
        if axis.get_legend_handles_labels()[0]:
            draw_legend(axis, 5.5)
    return save_figure(figure, stem)
