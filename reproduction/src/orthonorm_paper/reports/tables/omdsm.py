"""Text of the MNIST comparison: tables for figures 2 and 7-14, and the paper's claims."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from orthonorm_paper.records.cells import DASH, Cell, best, cells
from orthonorm_paper.records.counting import counted
from orthonorm_paper.records.files import Record
from orthonorm_paper.records.stability import complete
from orthonorm_paper.records.variations import base_name
from orthonorm_paper.reports.claims.mnist import judge
from orthonorm_paper.reports.claims.rule import verdict_table
from orthonorm_paper.reports.markdown import belonging, budget, circumstances, escape, heading, table
from orthonorm_paper.reports.paper_numbers import paper_numbers

_SYNTHETIC = " (synthetic)"
# What the label of a method ends in that is done as the authors' code does it.
_RELEASED = "-released"


def omdsm_text(records: Sequence[Record]) -> str:
    """Markdown of the comparison: a section for each figure of the paper, those that were not run named before.

    Of an experiment on synthetic data every heading and row says so, and no claim is judged.
    """
    numbers = paper_numbers()["omdsm"]
    name = records[0].run.experiment
    mark = _SYNTHETIC if base_name(name).endswith("-synthetic") else ""
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
        f"{escape(budget(chosen))}; {counted(len(chosen), 'run')}.",
        "",
        *_best_table(groups, numbers, mark),
        "",
        "Training loss of the last epoch at every learning rate (mean over the seeds):",
        "",
        *_rate_table(groups, numbers, mark),
        "",
        *(unjudged if mark else _verdicts(records, figure, numbers)),
        "",
    ]


def _methods(groups: Sequence[Cell], numbers: Mapping[str, Any]) -> list[str]:
    """The comparison's methods in the order of the tables, then any other that has records.

    The released forms are ours to add, so that they have no row where they did not run.
    """
    there = [cell.run.method for cell in groups]
    return [m for m in dict.fromkeys([*numbers["methods"], *there]) if m in there or not m.endswith(_RELEASED)]


def _best_table(groups: Sequence[Cell], numbers: Mapping[str, Any], mark: str) -> list[str]:
    columns = ("method", "best learning rate", "train loss", "test error, %", "seeds", "learning rates run",
               "diverged at", "the paper says")  # fmt: skip
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
    # A learning rate with fewer seeds than another is no candidate.
    top = best(complete(own), "train_loss")
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
    there = {record.run.method for record in batch}
    # A claim about several depths is printed once, with the last of them.
    claims = [claim for claim in numbers["claims"] if claim.get("depths", [depth])[-1] == depth]
    verdicts = [judge(form, batch, depth) for claim in claims for form in _forms(claim, there)]
    rows = [
        (v.claim["text"], f"**{v.answer}**", str(v.seeds), v.difference or DASH, v.numbers) for v in verdicts if v.seeds
    ]
    unrun = [verdict for verdict in verdicts if not verdict.seeds]
    columns = ("claim", "verdict", "seeds", "mean difference (95% interval)", "numbers, by seed")
    return verdict_table(columns, rows, unrun, len(verdicts))


def _forms(claim: Mapping[str, Any], there: Collection[str]) -> list[Mapping[str, Any]]:
    """The claim about the methods done right, and about the released ones where they ran."""

    def released(label: str) -> str:
        return f"{label}{_RELEASED}" if f"{label}{_RELEASED}" in there else label

    own, others = released(claim["method"]), [released(label) for label in claim.get("than", [])]
    if (own, others) == (claim["method"], claim.get("than", [])):
        return [claim]
    text = f"as released: {claim['text']}"
    return [claim, {**claim, "text": text, "method": own} | ({"than": others} if others else {})]
