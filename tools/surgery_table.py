"""Write the page "Other code and a computed weight" from the table that the tests run.

python tools/surgery_table.py    # from tests/surgery/ to docs/surgery.md
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from surgery.rows import Row  # noqa: E402
from surgery.table import SECTIONS  # noqa: E402

HEAD = """# Other code and a computed weight

Look here before you let other code assign, share, prune, fuse or quantize the weight of a converted layer.
`layer.weight` is computed from `V`, so such code must change `V` or work on a folded model. A write into the computed
tensor is lost without an error, because torch offers no way to detect it.

Each row is a test (`tests/surgery`), which compares weights and gradients with float64 arithmetic, or asks for the
error and then follows the cure. This page is written by `python tools/surgery_table.py`. Do not edit it by hand.
`layer` is `orthonorm.orthogonal_weight_norm(torch.nn.Linear(8, 4))`, and `W` is its weight.

Checkpoints have a [page of their own](guides/loading.md).
"""

TABLE = """
## {title}

| what is done | what comes of it | what to do |
|---|---|---|
"""


def outcome(row: Row) -> str:
    """Return what comes of a row, in words."""
    if row.raises is None:
        return f"works: {row.outcome}" if not row.cure else row.outcome
    who = "" if row.by == "orthonorm" else f" of {row.by}"
    return f"`{row.raises.__name__}`{who}{f' {row.outcome}' if row.outcome else ''}"


def line(row: Row) -> str:
    """Return one row of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in (row.what, outcome(row), row.cure))} |"


def page() -> str:
    """Return the whole page."""
    tables = [TABLE.format(title=title) + "\n".join(map(line, rows)) + "\n" for title, rows in SECTIONS.items()]
    return HEAD + "".join(tables)


if __name__ == "__main__":
    (ROOT / "docs/surgery.md").write_text(page())
