"""Table of an experiment that chooses learning rates: validation error at every one, and the one chosen."""

from __future__ import annotations

from collections.abc import Sequence

from orthonorm_paper.records.cells import DASH, Cell
from orthonorm_paper.records.chosen_learning_rate import Key, candidates, choose
from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.markdown import budget, escape, table

from .background import background
from .layouts import SYNTHETIC, VARIANTS, Layout, label_of


def rates_text(name: str, layout: Layout, variant: str, records: Sequence[Record]) -> str:
    """Markdown of the learning rates tried, a table for each data set and optimizer."""
    synthetic = variant == SYNTHETIC
    groups = candidates(records)
    lines = [
        f"# {name}: {layout.title}{VARIANTS[variant]}",
        "",
        f"- The paper: {layout.the_paper}",
        *background(records),
        "",
    ]
    for dataset, optimizer in dict.fromkeys((key[0], key[1]) for key in groups):
        own = {key: tried for key, tried in groups.items() if key[:2] == (dataset, optimizer)}
        title = escape(f"{dataset}, {str(optimizer).upper()}") + (", synthetic data" if synthetic else "")
        lines += [f"## {title}: validation error, %", "", *_budget(own), "", *_table(own, synthetic), ""]
    note = (
        "Mean ± standard deviation over the seeds in the last epoch; the learning rate with the lowest mean is chosen "
        "(in bold), of "
        f"equal ones that with the lower loss, then the smaller; {DASH} was not run."
    )
    return "\n".join([*lines, note, ""] if records else lines)


def _budget(groups: dict[Key, list[Cell]]) -> list[str]:
    return [escape(budget([record for tried in groups.values() for cell in tried for record in cell.records])) + "."]


def _table(groups: dict[Key, list[Cell]], synthetic: bool) -> list[str]:
    rates = sorted({cell.run.lr for tried in groups.values() for cell in tried})
    seeds = {seed for tried in groups.values() for cell in tried for seed in cell.seeds}
    rows = []
    for tried in sorted(groups.values(), key=_place):
        complete = len(tried) == len(rates) and all(set(cell.seeds) == seeds for cell in tried)
        chosen = choose(tried) if complete else None
        by_rate = {cell.run.lr: _text(cell, cell is chosen) for cell in tried}
        label = label_of(tried[0].run) + (" (synthetic)" if synthetic else "")
        missing = len(rates) * len(seeds) - sum(len(cell.seeds) for cell in tried)
        if chosen is not None:
            answer = f"{chosen.run.lr:g}"
        else:
            answer = "every one diverged" if complete else f"{missing} missing"
        rows.append((escape(label), *(by_rate.get(rate, DASH) for rate in rates), answer))
    return table(("method", *(f"{rate:g}" for rate in rates), "learning rate chosen"), rows)


def _place(tried: Sequence[Cell]) -> tuple[bool, str]:
    """Plain first, then by label."""
    label = label_of(tried[0].run)
    return not label.startswith("plain"), label


def _text(cell: Cell, chosen: bool) -> str:
    text = cell.text("test_error", 2) + (f" ({len(cell.records)} seeds)" if len(cell.records) > 1 else "")
    return f"**{text}**" if chosen else text
