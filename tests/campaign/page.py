"""Write the campaign's figures into the page of guarantees: `python tests/campaign/page.py`."""

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
BEGIN, END = "<!-- from docs/campaign.json, by tests/campaign/page.py -->\n", "<!-- end -->\n"
TYPES = ("float32", "float64", "bfloat16", "float16")


def table(content: dict[str, Any]) -> str:
    """Return the table of the figures, and what they were measured with."""
    properties = content["properties"]
    versions = ", ".join(f"{name} {version}" for name, version in content["versions"].items())
    total = sum(entry["cases"] for entry in properties.values())
    lines = [
        f"{total:,} cases in {content['seconds'] / 60:.0f} minutes; {versions}.",
        "",
        "| property | cases | comparisons | largest share of its limit |",
        "|---|---|---|---|",
    ]
    for name, entry in properties.items():
        share = f"{entry['share']:.1e}" if entry["checks"] else "exact"
        lines.append(f"| {name.replace('|', chr(92) + '|')} | {entry['cases']:,} | {entry['checks']:,} | {share} |")
    lines += ["", "| largest `abs(W W^T - I)` | " + " | ".join(TYPES) + " |", "|---|" + "---|" * len(TYPES)]
    for name, entry in properties.items():
        if any(key in entry for key in TYPES):
            errors = " | ".join(f"{entry[key]:.1e}" if key in entry else "" for key in TYPES)
            lines.append(f"| {name.replace('|', chr(92) + '|')} | {errors} |")
    return "\n".join(lines) + "\n"


def with_table(page: str, content: dict[str, Any]) -> str:
    """Return the page with the table between its two marks."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table(content)}\n{END}{after}"


def main() -> None:
    """Write docs/guarantees.md anew."""
    page = DOCS / "guarantees.md"
    page.write_text(with_table(page.read_text(), json.loads((DOCS / "campaign.json").read_text())))


if __name__ == "__main__":
    main()
