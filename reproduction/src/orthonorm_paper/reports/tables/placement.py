"""Records in the places of a layout: column by column, row by row."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.cells import Cell, best, cells
from orthonorm_paper.records.files import Record
from orthonorm_paper.records.stability import complete

from .layouts import FULL, SYNTHETIC, Layout, Row, belongs, column_of, label_of


@dataclass(frozen=True)
class Placed:
    """Records of one experiment, or of those that share a table, placed in its layout.

    Attributes:
        layout: of the table.
        variant: one of ``layouts.FULL``, ``REDUCED``, ``SYNTHETIC``.
        records: all of them.
        columns: records of each column, the paper's columns first; empty where nothing was run.
        rows: the paper's rows, then one for each label that it has not.
    """

    layout: Layout
    variant: str
    records: Sequence[Record]
    columns: dict[str, list[Record]]
    rows: list[Row]

    def column_title(self, key: str) -> str:
        """Title of a column in words; a synthetic one says so."""
        title = self.layout.columns.get(key, key)
        return f"{title}, synthetic" if self.variant == SYNTHETIC else title

    def row_title(self, row: Row) -> str:
        """Title of a row; the paper's names say its sizes, so that other sizes have the label alone."""
        if self.variant == FULL:
            return row.title or row.label
        several = len({r.run.model for r in self.records}) > 1 and self.layout.by != "model"
        title = f"{row.model or self.layout.model} {row.label}" if several else row.label
        return f"{title} (synthetic)" if self.variant == SYNTHETIC else title

    def cells(self, key: str, row: Row) -> list[Cell]:
        """Cells of a place by rising learning rate: more than one where several were run."""
        here = [r for r in self.columns.get(key, ()) if belongs(self.layout, row, r.run)]
        return sorted(cells(here), key=lambda cell: (cell.run.lr, cell.run.id))

    def chosen(self, key: str, row: Row) -> Cell | None:
        """The cell that stands for a place: the lowest final training loss, of those that all seeds ran."""
        found = self.cells(key, row)
        return found[0] if len(found) == 1 else best(complete(found) or found, "train_loss")


def place(layout: Layout, variant: str, records: Sequence[Record]) -> Placed:
    """Place records in a layout.

    Of data on which the layout's measure is not taken (top-5 errors, on synthetic data) the test error is shown.

    Raises:
        UserError: a record at the paper's size lacks the measure that the layout shows.
    """
    lacking = [record for record in records if record.epochs and not hasattr(record.epochs[-1], layout.field)]
    if lacking and variant == FULL:
        raise UserError(
            f"record {lacking[0].run.id} has no {layout.field}, which {layout.table or layout.title} shows: "
            "it is of another version; run it again"
        )
    if lacking:
        layout = dataclasses.replace(layout, field="test_error", measured="test error, %")
    columns: dict[str, list[Record]] = {key: [] for key in layout.columns} if variant == FULL else {}
    for key in sorted({column_of(layout, r.run) for r in records}, key=_in_the_order_of(layout)):
        columns[key] = [r for r in records if column_of(layout, r.run) == key]
    return Placed(layout, variant, records, columns, _rows(layout, variant, records))


def _in_the_order_of(layout: Layout) -> Callable[[str], tuple[int, str]]:
    order = list(layout.columns)
    return lambda key: (order.index(key) if key in order else len(order), key)


def _rows(layout: Layout, variant: str, records: Sequence[Record]) -> list[Row]:
    rows = list(layout.rows)
    for record in records:
        run = record.run
        if not any(belongs(layout, row, run) for row in rows):
            model = run.model if layout.model not in ("", run.model) else ""
            rows.append(Row(label_of(run), model=model))
    if variant == FULL:
        return rows
    # What the paper took from others, or ran on other networks, has no place beside another experiment.
    models = {record.run.model for record in records}
    return [row for row in rows if not row.only_paper and (not row.model or row.model in models)]
