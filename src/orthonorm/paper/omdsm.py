"""Report of the MNIST comparison: figures 2 and 7-14, tables, and the paper's claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orthonorm.paper.claims import judge, paper_numbers
from orthonorm.paper.experiments import experiment
from orthonorm.paper.markdown import circumstances, table
from orthonorm.paper.methods import METHODS
from orthonorm.paper.plots import COLOURS, draw_loss, panels, save_figure
from orthonorm.paper.records import Record
from orthonorm.paper.summary import DASH, Cell, best, cells


def write_omdsm(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write ``report.md`` and the figures of every depth and batch that has records."""
    name = records[0].run.experiment
    budget = experiment(name).budget
    numbers = paper_numbers()["omdsm"]
    lines = [f"# {experiment(name).title}", "", *_listed(circumstances(records, budget)), ""]
    paths: list[Path] = []
    for figure in numbers["figures"]:
        chosen = [record for record in records if _belongs(record, figure)]
        if not chosen:
            lines += [f"## {_heading(figure)}", "", f"{DASH} not run", ""]
            continue
        stem = folder / f"figure-{figure['number']}"
        paths += _draw(cells(chosen), figure, numbers, budget, stem)
        lines += _section(chosen, records, figure, numbers, budget)
    markdown = folder / "report.md"
    markdown.write_text("\n".join(lines), encoding="utf-8")
    return [markdown, *paths]


def _belongs(record: Record, figure: Mapping[str, Any]) -> bool:
    run = record.run
    depth = run.model_arguments.get("hidden_layers")
    return depth == figure["hidden_layers"] and run.batch_size == figure["batch_size"]


def _heading(figure: Mapping[str, Any]) -> str:
    depth, batch = figure["hidden_layers"], figure["batch_size"]
    return f"Figure {figure['number']}: {depth} hidden layers, batch {batch}"


def _listed(lines: Sequence[str]) -> list[str]:
    return [f"- {line}" for line in lines]


def _section(
    chosen: Sequence[Record],
    records: Sequence[Record],
    figure: Mapping[str, Any],
    numbers: Mapping[str, Any],
    budget: str,
) -> list[str]:
    groups = cells(chosen)
    seeds = sorted({record.run.seed for record in chosen})
    return [
        f"## {_heading(figure)}",
        "",
        f"![{_heading(figure)}](figure-{figure['number']}.png)",
        "",
        f"{budget}. Here: {len(chosen)} runs, seeds {', '.join(map(str, seeds))}.",
        "",
        *_best_table(groups, numbers),
        "",
        "Training loss of the last epoch at every rate (mean over the seeds):",
        "",
        *_rate_table(groups, numbers),
        "",
        *_verdicts(records, figure, numbers),
        "",
    ]


def _best_table(groups: Sequence[Cell], numbers: Mapping[str, Any]) -> list[str]:
    columns = ("method", "best rate", "train loss", "test error, %", "seeds", "rates run",
               "diverged at rates", "the paper says")  # fmt: skip
    return table(columns, [_best_row(method, groups, numbers) for method in METHODS])


def _best_row(
    method: str, groups: Sequence[Cell], numbers: Mapping[str, Any]
) -> tuple[str, ...]:
    own = sorted((c for c in groups if c.run.method == method), key=lambda cell: cell.run.lr)
    says = numbers["says"].get(method, DASH)
    if not own:
        return (method, *[DASH] * 6, says)
    diverged = ", ".join(
        f"{c.run.lr:g}" + ("" if c.diverged == len(c.records) else f" ({c.diverged} of {len(c.records)})")
        for c in own
        if c.diverged
    )  # fmt: skip
    run = f"{len(own)} of {len(numbers['rates'])}"
    top = best(own, "train_loss")
    if top is None:
        return (method, DASH, "diverged", "diverged", DASH, run, diverged, says)
    shown = (f"{top.run.lr:g}", top.text("train_loss", 4), top.text("test_error", 2))
    return (method, *shown, str(len(top.records)), run, diverged or "none", says)


def _rate_table(groups: Sequence[Cell], numbers: Mapping[str, Any]) -> list[str]:
    by_cell = {(cell.run.method, cell.run.lr): cell for cell in groups}
    rows = []
    for method in METHODS:
        found = [by_cell.get((method, rate)) for rate in numbers["rates"]]
        rows.append((method, *(DASH if cell is None else cell.mean_text("train_loss") for cell in found)))
    return table(("method", *(f"{rate:g}" for rate in numbers["rates"])), rows)


def _verdicts(
    records: Sequence[Record], figure: Mapping[str, Any], numbers: Mapping[str, Any]
) -> list[str]:
    depth = figure["hidden_layers"]
    batch = [record for record in records if record.run.batch_size == figure["batch_size"]]
    rows = []
    for claim in numbers["claims"]:
        # A claim about several depths is printed once, with the last of them.
        if claim.get("depths", [depth])[-1] != depth:
            continue
        verdict = judge(claim, batch, depth, numbers["rates"], numbers["seeds"])
        rows.append((claim["text"], f"**{verdict.answer}**", verdict.numbers))
    return table(("claim", "verdict", "numbers, by seed"), rows)


def _draw(
    groups: Sequence[Cell],
    figure: Mapping[str, Any],
    numbers: Mapping[str, Any],
    budget: str,
    stem: Path,
) -> list[Path]:
    methods = numbers["panels"]
    titles = [f"({letter}) {method}" for letter, method in zip("abc", methods, strict=True)]
    seeds = sorted({seed for cell in groups for seed in cell.seeds})
    foot = f"{_heading(figure)}. {budget}; seeds shown: {', '.join(map(str, seeds))}"
    drawn, axes = panels([*titles, "(d) best of each method"], foot)
    plain = best((cell for cell in groups if cell.run.method == "plain"), "train_loss")
    for axis, method in zip(axes, methods, strict=False):
        for index, rate in enumerate(numbers["rates"]):
            for cell in groups:
                if cell.run.method == method and cell.run.lr == rate:
                    draw_loss(axis, cell, f"{rate:g}", {"color": COLOURS[index % len(COLOURS)]})
        if plain is not None:
            style = {"color": "black", "linestyle": "--"}
            draw_loss(axis, plain, f"plain, {plain.run.lr:g}", style)
        axis.legend(fontsize=5.5)
    _draw_best(axes[-1], groups)
    return save_figure(drawn, stem)


def _draw_best(axis: Any, groups: Sequence[Cell]) -> None:
    for index, method in enumerate(METHODS):
        top = best((cell for cell in groups if cell.run.method == method), "train_loss")
        if top is not None:
            style = {
                "color": COLOURS[index % len(COLOURS)],
                "linestyle": "-" if index < len(COLOURS) else "--",
            }
            draw_loss(axis, top, f"{method}, {top.run.lr:g}", style)
    axis.legend(fontsize=5.5)
