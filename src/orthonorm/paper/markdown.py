"""Pieces of Markdown that reports share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orthonorm.paper.records import Record


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table.

    Example:
        >>> table(("method", "loss"), [("OLM", "0.1")])
        ['| method | loss |', '|---|---|', '| OLM | 0.1 |']
    """
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def circumstances(records: Sequence[Record], budget: str) -> list[str]:
    """Data set, budget, seeds, versions and devices of some records, a line each."""
    seeds = sorted({record.run.seed for record in records})
    headers = [record.header for record in records]
    versions = sorted({", ".join(f"{k} {v}" for k, v in h["versions"].items()) for h in headers})
    devices = sorted({f"{h['device']}, {h['threads']} thread(s) a run" for h in headers})
    return [
        f"Data and budget: {budget}",
        f"Seeds: {', '.join(map(str, seeds))}",
        f"Versions: {'; '.join(versions)}",
        f"Device: {'; '.join(devices)}",
    ]
