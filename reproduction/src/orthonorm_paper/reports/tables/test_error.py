"""Text of a table of errors: the paper's numbers and ours beside them, with everything that decides ours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from orthonorm_paper.records.cells import DASH, Cell
from orthonorm_paper.records.counting import counted
from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.claims.tables import verdict_lines
from orthonorm_paper.reports.figures.mean_curves import epoch_reached, mean_curve
from orthonorm_paper.reports.markdown import budget, escape, table

from .background import background
from .layouts import FULL, REDUCED, SYNTHETIC, VARIANTS, Row
from .placement import Placed

_NOTE = (
    "Mean ± standard deviation over the seeds in the last epoch, with the number of seeds and the first learning rate; "
    f"{DASH} was not run or is not in the paper."
)


def errors_text(name: str, placed: Placed, pictures: Sequence[str] = ()) -> str:
    """Markdown of one table: budgets, the table, epochs to plain's error, the figure, the claims.

    Args:
        name: the experiment, or what its table is called.
        placed: its records.
        pictures: file names of the figure's pictures.
    """
    lines = [f"# {name}: {placed.layout.title}{VARIANTS[placed.variant]}", "", *budget_lines(placed), ""]
    lines += _error_section(placed)
    if placed.records:
        lines += [*_reach_section(placed), *_figure_section(placed, pictures), *_claims_section(placed)]
    return "\n".join(lines)


def budget_lines(placed: Placed) -> list[str]:
    """What the paper ran, what we ran in each column, on which networks and machine, as a list."""
    lines = [f"- The paper: {placed.layout.the_paper}"]
    for key, records in placed.columns.items():
        ours = escape(budget(records)) if records else f"{DASH} not run"
        lines.append(f"- Ours, {escape(placed.column_title(key))}: {ours}")
    return [*lines, *background(placed.records, with_budget=False)]


def _error_section(placed: Placed) -> list[str]:
    rows = [line for row in placed.rows for line in _lines(placed, row)]
    heading = _heading(placed, placed.layout.table, placed.layout.measured)
    return [heading, "", *table(("method", *_headings(placed)), rows), "", _NOTE, ""]


def _heading(placed: Placed, of_the_paper: str, what: str) -> str:
    """Heading with what the paper calls it, and whether ours is reduced or synthetic."""
    added = VARIANTS[placed.variant]
    return f"## {of_the_paper}{added}: {what}" if of_the_paper else f"## {what[0].upper()}{what[1:]}{added}"


def _paper_column(placed: Placed, key: str) -> tuple[str, str] | None:
    """Heading of the column with the paper's values and the key to them; None where there is none."""
    layout = placed.layout
    keys = [k for k in layout.columns if any(k in row.paper for row in layout.rows)]
    if not keys:
        return ("the paper says", "") if any(row.says for row in layout.rows) else None
    if placed.variant == FULL:
        return (f"{layout.columns[key]}, the paper", key) if key in keys else None
    # Another data set or budget: the paper's value is printed and marked as such.
    told = key if key in keys else keys[0]
    where = f"{layout.columns[told]} on {layout.dataset}" if layout.dataset else f"on {layout.columns[told]}"
    return (f"the paper, {where}, full budget", told)


def _headings(placed: Placed) -> Iterator[str]:
    for key in placed.columns:
        told = _paper_column(placed, key)
        if told is not None:
            yield told[0]
        # The title of a synthetic column says so itself.
        ours = "ours, reduced" if placed.variant == REDUCED else "ours"
        yield escape(f"{placed.column_title(key)}, {ours}")


def _lines(placed: Placed, row: Row) -> list[tuple[str, ...]]:
    """Lines of a row: one, or as many as a column has learning rates."""
    found = {key: placed.cells(key, row) for key in placed.columns}
    count = max(1, *(len(group) for group in found.values())) if found else 1
    return [
        (escape(placed.row_title(row)), *_values(placed, row, {k: group[i : i + 1] for k, group in found.items()}))
        for i in range(count)
    ]


def _values(placed: Placed, row: Row, found: dict[str, list[Cell]]) -> Iterator[str]:
    for key, group in found.items():
        told = _paper_column(placed, key)
        if told is not None:
            yield _told(row, told[1])
        yield _ours(placed, key, group[0]) if group else DASH


def _told(row: Row, key: str) -> str:
    if not key:
        return row.says or DASH
    numbers = row.paper.get(key)
    return DASH if numbers is None else " ± ".join(f"{number:.2f}" for number in numbers)


def _ours(placed: Placed, key: str, cell: Cell) -> str:
    count = len(cell.records)
    seeds = f"{count} of {placed.layout.seeds} seeds" if _short(placed, count) else counted(count, "seed")
    notes = [seeds, f"learning rate {cell.run.lr:g}", *_own_budget(placed.columns[key], cell)]
    return f"{cell.text(placed.layout.field, 2)} ({', '.join(notes)})"


def _short(placed: Placed, count: int) -> bool:
    return placed.variant == FULL and count < placed.layout.seeds


def _own_budget(column: Sequence[Record], cell: Cell) -> list[str]:
    """Budget of a cell where others of its column have another one."""
    words = {"epochs": f"{cell.run.epochs} epochs", "batch_size": f"batch {cell.run.batch_size}"}
    return [text for name, text in words.items() if len({getattr(r.run, name) for r in column}) > 1]


def _reach_section(placed: Placed) -> list[str]:
    """Epoch in which each method's mean error is plain's final one or less."""
    plain = next((row for row in placed.rows if row.label.split("+")[0] == "plain" and not row.model), None)
    targets = {} if plain is None else {key: _target(placed, key, plain) for key in placed.columns}
    others = [row for row in placed.rows if row is not plain and not row.only_paper and not row.model]
    lines = []
    for row in others:
        cells = [text for key, target in targets.items() for text in _reach_cells(placed, key, target, row)]
        if any(text != DASH for text in cells):
            lines.append((escape(placed.row_title(row)), *cells))
    if not lines:
        return []
    columns = ["method"]
    for key, target in targets.items():
        title = escape(placed.column_title(key))
        columns += [f"{title}, the paper"] if _reach_told(placed, key) else []
        columns.append(f"{title}, ours" + ("" if target is None else f" (to {target:.2f}%)"))
    heading = _heading(placed, "", "epoch of plain's final error")
    note = f"The first epoch in which the mean {placed.layout.measured.rstrip(', %')} is at most plain's in its last."
    return [heading, "", *table(columns, lines), "", note, ""]


def _target(placed: Placed, key: str, plain: Row) -> float | None:
    cell = placed.chosen(key, plain)
    final = math.inf if cell is None else cell.mean(placed.layout.field)
    return final if math.isfinite(final) else None


def _reach_told(placed: Placed, key: str) -> bool:
    return placed.variant == FULL and any(key in row.reach for row in placed.rows)


def _reach_cells(placed: Placed, key: str, target: float | None, row: Row) -> Iterator[str]:
    if _reach_told(placed, key):
        yield str(row.reach.get(key, DASH))
    own = placed.chosen(key, row)
    if target is None or own is None:
        yield DASH
        return
    epoch = epoch_reached(mean_curve(own.records, placed.layout.field), target)
    yield "not reached" if epoch is None else f"{epoch} of {own.run.epochs}"


def _figure_section(placed: Placed, pictures: Sequence[str]) -> list[str]:
    if not pictures:
        return []
    heading = _heading(placed, placed.layout.figure, "error against epochs")
    images = [f"![{heading.removeprefix('## ')}]({picture})" for picture in pictures]
    return [heading, "", *images, "", "Training error solid, test error dashed with triangles.", ""]


def _claims_section(placed: Placed) -> list[str]:
    if placed.variant == SYNTHETIC:
        return ["## Claims", "", "No claim of the paper is judged on synthetic data.", ""]
    heading = "## Claims" + (", judged at the reduced size" if placed.variant == REDUCED else "")
    return [heading, "", *verdict_lines(placed), ""]
