"""Write the numbers of docs/gallery/index.md from the records beside it: `python examples/gallery.py`.

Each example writes NAME.json. The page has a block `<!-- NAME -->` ... `<!-- end -->` for it, which this script fills
with how the numbers were made and their table. The sentences around the blocks are held to the records by the tests.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Rows = dict[str, dict[str, Any]]
BLOCK = re.compile(r"<!-- (?!end)(\S+) -->\n.*?<!-- end -->", re.DOTALL)


def table(rows: Rows) -> str:
    """Return a Markdown table, numbers with three digits."""
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    lines = [["", *columns], ["---"] * (len(columns) + 1)]
    for name, row in rows.items():
        lines.append([name, *(f"{row[column]:.3g}" if column in row else "" for column in columns)])
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def deepest_networks(record: dict[str, Any]) -> Rows:
    """Return a row for each start: what the deepest network of each activation does."""
    rows: Rows = {}
    for activation, found in record["figures"].items():
        quantities = ("covariance", "gradient") if activation.startswith("linear") else ("forward", "gradient")
        for start, points in found.items():
            for quantity in quantities:
                rows.setdefault(start, {})[f"{activation}: {quantity}"] = list(points.values())[-1][quantity]
    return rows


def some_strengths(record: dict[str, Any]) -> Rows:
    """Return the bound and the errors at a few strengths; the picture shows them all."""
    columns = ("product of norms", "noise 0.0", "noise 0.2", "noise 0.4", "noise 0.6", "FGSM 0.04", "FGSM 0.1")
    return {method: {column: row[column] for column in columns} for method, row in record["figures"].items()}


def without_curve(record: dict[str, Any]) -> Rows:
    """Return what was measured at the radii of the attack; the picture shows the curve."""
    return {
        method: {column: value for column, value in row.items() if not column.startswith("curve")}
        for method, row in record["figures"].items()
    }


def every_rate(record: dict[str, Any]) -> Rows:
    """Return each method at its best learning rate, and its test error at every one."""
    rows = record["figures"]
    errors = {
        name: {f"error at {rate}": row["test error, %"] for rate, row in record["rates"][name].items()} for name in rows
    }
    return {name: row | errors[name] for name, row in rows.items()}


ROWS: dict[str, Callable[[dict[str, Any]], Rows]] = {
    "deep": every_rate,
    "lipschitz": without_curve,
    "propagation": deepest_networks,
    "robustness": some_strengths,
    "wgan-gp": lambda record: record["critics"],
}


def block(name: str, folder: Path) -> str:
    """Return the block of one example."""
    record = json.loads((folder / f"{name}.json").read_text())
    rows = ROWS[name](record) if name in ROWS else record["figures"]
    how = f"`python examples/{name.replace('-', '_')}.py`: {record['data']}; {record['steps']} steps, seeds "
    how += f"{', '.join(map(str, record['seeds']))}, torch {record['torch']}."
    return f"<!-- {name} -->\n{how}\n\n{table(rows)}\n<!-- end -->"


def fill(page: str, folder: Path) -> str:
    """Return the page with every block written again."""
    return BLOCK.sub(lambda found: block(found[1], folder), page)


def main(folder: Path = Path("docs/gallery")) -> None:
    """Rewrite the page in place."""
    page = folder / "index.md"
    page.write_text(fill(page.read_text(), folder))


if __name__ == "__main__":
    main()
