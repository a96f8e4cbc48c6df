"""What stands above every table: networks, budget, versions and machine of its records."""

from __future__ import annotations

from collections.abc import Sequence

from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.markdown import circumstances, escape


def background(records: Sequence[Record], *, with_budget: bool = True) -> list[str]:
    """Lines of a list: data and budget (if wanted), networks, versions, devices; none without records."""
    if not records:
        return []
    first, *rest = (f"- {escape(line)}" for line in circumstances(records))
    return [*([first] if with_budget else []), *(f"- {line}" for line in _networks(records)), *rest]


def _networks(records: Sequence[Record]) -> list[str]:
    """Network, its arguments and its number of parameters (which some methods change), a line each."""
    counts: dict[str, set[int]] = {}
    for record in records:
        arguments = ", ".join(f"{name} {value}" for name, value in record.run.model_args)
        text = record.run.model + (f" ({arguments})" if arguments else "")
        counts.setdefault(text, set()).add(record.header.parameters)
    return [f"Network: {escape(text)}, {_span(found)} parameters" for text, found in sorted(counts.items())]


def _span(counts: set[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
