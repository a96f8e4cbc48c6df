"""Write the table of loaders into its page: `PYTHONPATH=tests python tests/loaders/page.py`."""

from pathlib import Path

from loaders.rows import CURES, LOADERS, UNFILLED, Loader

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "loading.md"
BEGIN, END = "<!-- from tests/loaders/rows.py, by tests/loaders/page.py -->\n", "<!-- end -->\n"


def row(loader: Loader) -> str:
    """Return one line of the table: what the tests ask of this loader."""
    plain = "**ignored**" if loader.ignored else "works"
    if loader.raised:
        error, message = loader.raised
        # What a loader has left without values is found out when the weight is first computed.
        plain = f"`{error.__name__}`{' at the first use' if message == UNFILLED else ''}"
    return f"| {loader.call} | {plain} | works | {CURES[loader.cure][0] if loader.cure else ''} |"


def with_table(page: str) -> str:
    """Return the page with the table between its two marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    head = ["| loader | plain file | converted file | cure for a plain file |", "|---|---|---|---|"]
    return f"{before}{BEGIN}\n" + "\n".join([*head, *map(row, LOADERS)]) + f"\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
