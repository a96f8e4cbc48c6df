"""Report of a sequence experiment: a table, the questions' answers and a figure for each network."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from orthonorm_paper.records.cells import DASH, Cell, cells
from orthonorm_paper.records.files import Record
from orthonorm_paper.records.sequences import METHODS, MODELS, memoryless_loss
from orthonorm_paper.reports.claims.rule import RULE
from orthonorm_paper.reports.claims.sequences import QUESTIONS, chosen, epoch_seconds, judge
from orthonorm_paper.reports.figures.losses import COLOURS, draw_loss, save_figure

from .markdown import budget, circumstances, escape, table

COLUMNS = ("method", "best learning rate", "train loss", "test loss", "test error, %", "orthogonality error",
           "ms a step", "diverged at")  # fmt: skip
WORDS = {
    "recurrent-plain": "recurrent weight free, torch's initialization (uniform in ±1/sqrt(width))",
    "recurrent-start": "recurrent weight free, orthogonal initialization of each gate's matrix",
    "recurrent-torch": "the same initialization, kept orthogonal by `torch.nn.utils.parametrizations.orthogonal`",
    "recurrent-OLM": "the same initialization, kept orthogonal by `orthonorm.orthogonalize_` (uncentred)",
    "recurrent-OLM-scale": "the same with a learned scale for each row",
}


def write_sequences(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write ``report.md`` and ``figure.png`` / ``figure.svg`` of ``copying`` or ``rows-5k``."""
    markdown = folder / "report.md"
    markdown.write_text(sequences_text(records), encoding="utf-8")
    return [markdown, *_draw(records, folder / "figure")]


def sequences_text(records: Sequence[Record]) -> str:
    """Markdown of a sequence experiment: a section for each network."""
    name = records[0].run.experiment
    lines = [
        f"# {name}: orthogonal recurrent weights",
        "",
        *(f"- {escape(line)}" for line in circumstances(records)),
        f"- Optimizer {records[0].run.optimizer}; width {records[0].run.model_arguments['width']}; every method "
        "at the learning rate with the lowest mean training loss in the last epoch, of those that all its seeds ran.",
        *(f"- `{method}`: {WORDS[method]}" for method in METHODS),
        "- Mean ± standard deviation over the seeds. The orthogonality error is the largest |W Wᵀ - I| over "
        "gates and seeds, before a learned scale. Seconds are those of a method's fastest epoch at any learning rate: "
        "other work ran beside it.",
        "- A step of `recurrent-plain` and one of `recurrent-start` compute the same: where their times differ, it is "
        "how much the load of the machine disturbed the clock.",
        *_baseline(records),
        "",
        "![training loss against steps and seconds](figure.png)",
        "",
    ]
    for model in MODELS:
        own = cells(record for record in records if record.run.model == model)
        lines += [f"## {model}", "", *(_section(own) if own else [f"{DASH} not run"]), ""]
    return "\n".join(lines)


def _baseline(records: Sequence[Record]) -> list[str]:
    loss = memoryless_loss(records[0].run.dataset)
    if loss is None:
        return []
    return [f"- Loss of a network that remembers nothing: 10 ln 8 / (T + 20) = {loss:.4f}, the dotted line."]


def _section(own: Sequence[Cell]) -> list[str]:
    grid = sorted({cell.run.lr for cell in own})
    rates = [
        (method, *(next((c.mean_text("train_loss") for c in own if (c.run.method, c.run.lr) == (method, rate)), DASH)
                   for rate in grid))
        for method in METHODS
    ]  # fmt: skip
    return [
        *table(COLUMNS, [_row(method, own) for method in METHODS]),
        "",
        "Training loss of the last epoch at every learning rate (mean over the seeds):",
        "",
        *table(("method", *(f"{rate:g}" for rate in grid)), rates),
        "",
        *_verdicts(own),
    ]  # fmt: skip


def _verdicts(own: Sequence[Cell]) -> list[str]:
    verdicts = [(question.text, judge(question, own)) for question in QUESTIONS]
    rows = [(text, f"**{v.answer}**", str(v.seeds), v.difference or DASH, v.numbers) for text, v in verdicts if v.seeds]
    columns = ("statement", "verdict", "seeds", "mean difference (95% interval)", "numbers, by seed")
    unrun = len(verdicts) - len(rows)
    told = [f"{unrun} of {len(verdicts)} statements are undecided, as not every run is recorded."] if unrun else []
    return [*([*table(columns, rows), "", RULE] if rows else []), *([""] if rows and told else []), *told]


def _row(method: str, own: Sequence[Cell]) -> tuple[str, ...]:
    diverged = [
        f"{cell.run.lr:g} ({cell.diverged} of {len(cell.records)})"
        for cell in sorted(own, key=lambda cell: cell.run.lr)
        if cell.run.method == method and cell.diverged
    ]
    there = any(cell.run.method == method for cell in own)
    top = chosen(own, method)
    if top is None:
        return (method, *[DASH] * 6, ", ".join(diverged) if there else DASH)
    error = max(float(record.last("orthogonality_error") or 0.0) for record in top.records)
    milliseconds = 1000 * epoch_seconds(own, method) / top.records[0].header.steps_per_epoch
    return (
        method,
        f"{top.run.lr:g}",
        top.text("train_loss", 4),
        top.text("test_loss", 4),
        top.text("test_error", 2),
        f"{error:.1e}",
        f"{milliseconds:.1f}",
        ", ".join(diverged) or "none",
    )


def _draw(records: Sequence[Record], stem: Path) -> list[Path]:
    with mpl.rc_context({"font.size": 8.0}):
        figure = Figure(figsize=(7.6, 5.4), layout="constrained")
        rows = figure.subplots(len(MODELS), 2, squeeze=False, sharey="row")
        for model, row in zip(MODELS, rows.tolist(), strict=True):
            own = cells(record for record in records if record.run.model == model)
            for method in METHODS:
                cell = chosen(own, method)
                if cell is None:
                    continue
                label = f"{method.removeprefix('recurrent-')}, {cell.run.lr:g}"
                style = {"color": COLOURS[METHODS.index(method)]}
                units = cell.records[0].header.steps_per_epoch, epoch_seconds(own, method)
                for axis, unit in zip(row, units, strict=True):
                    draw_loss(axis, cell, label, style, unit)
            _finish(row, model, memoryless_loss(records[0].run.dataset))
        foot = "\n".join(textwrap.wrap(budget(records), 150))
        figure.supxlabel(foot, fontsize=6.0, color="#555555", parse_math=False)
    return save_figure(figure, stem)


def _finish(row: Sequence[Axes], model: str, baseline: float | None) -> None:
    for axis, unit in zip(row, ("steps", "seconds"), strict=True):
        axis.set(title=f"{model}: loss against {unit}", xlabel=unit, yscale="log")
        axis.grid(alpha=0.3, linewidth=0.5)
        if baseline is not None:
            axis.axhline(baseline, color="black", linestyle=":", linewidth=0.8)
    row[0].set_ylabel("training loss")
    if row[0].get_legend_handles_labels()[0]:
        row[0].legend(fontsize=6)
