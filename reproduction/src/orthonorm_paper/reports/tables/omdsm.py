"""Text of the MNIST comparison: tables for figures 2 and 7-14, and the paper's claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orthonorm_paper.records.cells import DASH, Cell, best, cells
from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.claims.mnist import judge
from orthonorm_paper.reports.markdown import belonging, budget, circumstances, escape, heading, table
from orthonorm_paper.reports.paper_numbers import paper_numbers

_SYNTHETIC = " (synthetic)"


def omdsm_text(records: Sequence[Record]) -> str:
    """Markdown of the comparison: a section for each figure of the paper, those that were not run named before.

    Of an experiment on synthetic data every heading and row says so, and no claim is judged.
    """
    numbers = paper_numbers()["omdsm"]
    name = records[0].run.experiment
    mark = _SYNTHETIC if name.endswith("-synthetic") else ""
    shown = [(figure, belonging(records, figure)) for figure in numbers["figures"]]
    absent = [heading(figure) for figure, chosen in shown if not chosen]
    told = [f"Not run, {DASH}: {'; '.join(absent)}"] if absent else []
    lines = [f"# {escape(name)}: {numbers['title']}{mark}", "", *_listed([*circumstances(records), *told]), ""]
    for figure, chosen in shown:
        if chosen:
            lines += _section(chosen, records, figure, numbers, mark)
    return "\n".join(lines)


def _listed(lines: Sequence[str]) -> list[str]:
    return [f"- {escape(line)}" for line in lines]


def _section(
    chosen: Sequence[Record],
    records: Sequence[Record],
    figure: Mapping[str, Any],
    numbers: Mapping[str, Any],
    mark: str,
) -> list[str]:
    groups = cells(chosen)
    title = heading(figure) + mark
    unjudged = ["No claim of the paper is judged on synthetic data."]
    return [
        f"## {title}",
        "",
        f"![{title}](figure-{figure['number']}.png)",
        "",
        f"{escape(budget(chosen))}; {len(chosen)} run{'s' if len(chosen) > 1 else ''}.",
        "",
        *_best_table(groups, numbers, mark),
        "",
        "Training loss of the last epoch at every rate (mean over the seeds):",
        "",
        *_rate_table(groups, numbers, mark),
        "",
        *(unjudged if mark else _verdicts(records, figure, numbers)),
        "",
    ]


def _methods(groups: Sequence[Cell], numbers: Mapping[str, Any]) -> list[str]:
    """The comparison's methods in the order of the tables, then any other that has records."""
    return list(dict.fromkeys([*numbers["methods"], *(cell.run.method for cell in groups)]))


def _best_table(groups: Sequence[Cell], numbers: Mapping[str, Any], mark: str) -> list[str]:
    columns = ("method", "best rate", "train loss", "test error, %", "seeds", "rates run",
               "diverged at rates", "the paper says")  # fmt: skip
    rows = [(method, *_best_row(method, groups, numbers)) for method in _methods(groups, numbers)]
    return table(columns, [(escape(method) + mark, *row) for method, *row in rows])


def _best_row(method: str, groups: Sequence[Cell], numbers: Mapping[str, Any]) -> tuple[str, ...]:
    own = sorted((c for c in groups if c.run.method == method), key=lambda cell: cell.run.lr)
    says = numbers["says"].get(method, DASH)
    if not own:
        return (*[DASH] * 6, says)
    diverged = ", ".join(
        f"{c.run.lr:g}" + ("" if c.diverged == len(c.records) else f" ({c.diverged} of {len(c.records)})")
        for c in own
        if c.diverged
    )  # fmt: skip
    run = f"{len(own)} of {len(numbers['rates'])}"
    top = best(own, "train_loss")
    if top is None:
        word = "diverged" if diverged else "not finite"
        return (DASH, word, word, DASH, run, diverged or "none", says)
    shown = (f"{top.run.lr:g}", top.text("train_loss", 4), top.text("test_error", 2))
    return (*shown, str(len(top.records)), run, diverged or "none", says)


def _rate_table(groups: Sequence[Cell], numbers: Mapping[str, Any], mark: str) -> list[str]:
    by_cell = {(cell.run.method, cell.run.lr): cell for cell in groups}
    rows = []
    for method in _methods(groups, numbers):
        found = [by_cell.get((method, rate)) for rate in numbers["rates"]]
        rows.append(
            (escape(method) + mark, *(DASH if cell is None else cell.mean_text("train_loss") for cell in found))
        )
    return table(("method", *(f"{rate:g}" for rate in numbers["rates"])), rows)


def _verdicts(records: Sequence[Record], figure: Mapping[str, Any], numbers: Mapping[str, Any]) -> list[str]:
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
