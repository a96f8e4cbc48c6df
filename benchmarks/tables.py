"""A benchmark's result as JSON and as a Markdown table that names the machine."""

import json
from pathlib import Path
from typing import Any

__all__ = ["as_markdown", "write_result"]


def as_markdown(result: dict[str, Any]) -> str:
    """Return the rows as a Markdown table under a line that says where and how they were measured."""
    rows = result["rows"]
    names = list(rows[0])
    head = ", ".join(f"{key} {value}" for key, value in result["machine"].items())
    lines = [
        f"{head}; medians of {result['rounds']} interleaved rounds",
        "",
        "| " + " | ".join(names) + " |",
        "|" + " --- |" * len(names),
    ]
    lines += ["| " + " | ".join(_cell(row[name]) for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def write_result(result: dict[str, Any], folder: Path) -> Path:
    """Write `NAME.json` and `NAME.md` into a folder and return the path of the table."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['benchmark']}.md"
    path.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    path.write_text(as_markdown(result))
    return path


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if isinstance(value, float) else str(value)
