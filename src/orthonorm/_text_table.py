"""The tables that reports print."""

from collections.abc import Sequence

__all__ = ["text_table"]


def text_table(heading: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> list[str]:
    r"""Return the lines of a table: the heading, a rule and the rows.

    Args:
        heading: a word for each column.
        rows: their cells.
        right: which columns are flush right.

    Examples:
        >>> print(*text_table(("a", "number"), [("row", "1")], right=[1]), sep="\n")
        a    number
        ---  ------
        row       1
    """
    widths = [max(map(len, column)) for column in zip(heading, *rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (heading, *rows)
    ]
    return [lines[0], "  ".join("-" * width for width in widths), *lines[1:]]
