"""Seconds per iteration from the records of any experiment: the paper's beside ours, and their ratios to plain."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.cells import DASH, Cell, cells
from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.claims.cost import Seconds, judge_cost
from orthonorm_paper.reports.markdown import escape, machine, table

from .background import background
from .layouts import SYNTHETIC, VARIANTS, Layout, Row, belongs, label_of

COLUMNS = ("network", "method", "the paper, s", "times plain", "ours, s", "times plain", "ours measured with")

_NOTE = (
    "Ours: the median over epochs and seeds of an epoch's seconds divided by its steps, a run's first epoch left out "
    "where it has others. Times of other machines do not compare; their ratios may."
)


def cost_text(name: str, layout: Layout, variant: str, records: Sequence[Record]) -> str:
    """Markdown of the table of costs and its claims."""
    synthetic = variant == SYNTHETIC
    measured = _measured(records)
    ours = {place: s for place, cell in measured.items() if (s := seconds_per_iteration(cell.records)) is not None}
    told = {(row.model, row.label): row.seconds for row in layout.rows if row.seconds is not None}
    rows = [_line(row, measured, ours, told, synthetic) for row in _rows(layout, measured)]
    lines = [
        f"# {name}: {layout.title}{VARIANTS[variant]}",
        "",
        f"- The paper: {layout.the_paper}",
        *(background(records) or [f"- Ours: {DASH} not run"]),
        "",
        "## Seconds per iteration" + (", synthetic data" if synthetic else ""),
        "",
        *table(COLUMNS, rows),
        "",
        _NOTE,
        "",
    ]
    # A time does not depend on what the images show: claims are judged on synthetic data too.
    verdicts = [(v.claim["text"], f"**{v.answer}**", v.numbers) for v in (judge_cost(c, ours) for c in layout.claims)]
    claims = ["## Claims", "", *table(("claim", "verdict", "numbers"), verdicts), ""]
    return "\n".join([*lines, *(claims if records else [])])


def seconds_per_iteration(records: Sequence[Record]) -> float | None:
    """Median over epochs of ``seconds / steps``, a run's first epoch left out where it has others.

    The first epoch carries what is done once (the choice of kernels, the first allocations).

    Examples:
        >>> from orthonorm_paper.records.files import End, Epoch, Header
        >>> epochs = [Epoch.model_construct(step=10 * i, seconds=s) for i, s in enumerate((9.0, 2.0, 3.0), 1)]
        >>> seconds_per_iteration([Record(Header.model_construct(), tuple(epochs), End.model_construct())])
        0.25
    """
    values: list[float] = []
    for record in records:
        steps = [0, *(line.step for line in record.epochs)]
        each = [
            line.seconds / (steps[i + 1] - steps[i])
            for i, line in enumerate(record.epochs)
            if line.seconds is not None and steps[i + 1] > steps[i]
        ]
        values += each[1:] or each
    return statistics.median(values) if values else None


def _measured(records: Sequence[Record]) -> dict[tuple[str, str], Cell]:
    found: dict[tuple[str, str], Cell] = {}
    for cell in cells(records):
        place = (cell.run.model, label_of(cell.run))
        if place in found:
            raise UserError(
                f"a cost is that of one kind of run: {found[place].run.id} and {cell.run.id} are both "
                f"{place[1]} on {place[0]}; keep the records of one of them"
            )
        found[place] = cell
    return found


def _rows(layout: Layout, measured: Mapping[tuple[str, str], Cell]) -> list[Row]:
    own = [cell.run for cell in measured.values() if not any(belongs(layout, row, cell.run) for row in layout.rows)]
    return [*layout.rows, *(Row(label_of(run), model=run.model, title=run.model) for run in own)]


def _line(
    row: Row, measured: Mapping[tuple[str, str], Cell], ours: Seconds, told: Seconds, synthetic: bool
) -> tuple[str, ...]:
    place = (row.model, row.label)
    cell = measured.get(place)
    how = DASH if cell is None else _how(cell)
    label = f"{row.label} (synthetic)" if synthetic else row.label
    return (escape(row.title), escape(label), *_two(place, told), *_two(place, ours), how)


def _two(place: tuple[str, str], seconds: Seconds) -> tuple[str, str]:
    own, plain = seconds.get(place), seconds.get((place[0], "plain"))
    if own is None:
        return DASH, DASH
    return f"{own:.3g}", DASH if plain is None else f"{own / plain:.2f}"


def _how(cell: Cell) -> str:
    devices = sorted({machine(record.header) for record in cell.records})
    count = sum(len(record.epochs) for record in cell.records)
    return escape(f"batch {cell.run.batch_size}, {cell.run.dataset}, {', '.join(devices)}, {count} epochs")
