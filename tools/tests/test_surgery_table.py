"""The page of what other code does to a computed weight is that of the rows that are tested."""

from pathlib import Path

import surgery_table
from surgery.table import SECTIONS

PAGE = Path(__file__).parents[2] / "docs/surgery.md"


def test_the_page_is_what_the_rows_say():
    assert PAGE.read_text() == surgery_table.page()


def test_each_row_says_what_is_done_and_each_error_its_cure():
    for row in (row for rows in SECTIONS.values() for row in rows):
        assert row.what
        assert row.cure if row.raises else row.outcome
        assert (row.raises is None) == (row.act is None)
        assert row.raises is None or row.names
