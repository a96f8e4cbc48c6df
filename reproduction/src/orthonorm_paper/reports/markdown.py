"""Pieces of Markdown that reports share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from orthonorm_paper.records.files import Header, Record
from orthonorm_paper.records.schedules import describe


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table.

    Examples:
        >>> table(("method", "loss"), [("OLM", "0.1")])
        ['| method | loss |', '|---|---|', '| OLM | 0.1 |']
    """
    return [
        "| " + " | ".join(columns) + " |",
        "|" + "---|" * len(columns),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def escape(text: str) -> str:
    r"""Text for a line or a cell of Markdown in which no character means anything.

    An underscore inside a word means nothing as it is.

    Examples:
        >>> print(escape("OLM_var <script> a|b *c*"))
        OLM_var \<script\> a\|b \*c\*
    """
    return re.sub(r"[\\`*<>|\[\]~&]|(?<!\w)_|_(?!\w)", r"\\\g<0>", " ".join(text.split()))


def heading(figure: Mapping[str, Any]) -> str:
    """Title of a figure of the paper: its number, depth and batch."""
    depth, batch = figure["hidden_layers"], figure["batch_size"]
    return f"Figure {figure['number']}: {depth} hidden layers, batch {batch}"


def belonging(records: Sequence[Record], figure: Mapping[str, Any]) -> list[Record]:
    """Records of a figure's depth and batch."""
    wanted = (figure["hidden_layers"], figure["batch_size"])
    return [r for r in records if (r.run.model_arguments.get("hidden_layers"), r.run.batch_size) == wanted]


def budget(records: Sequence[Record]) -> str:
    """Data set, epochs, steps, schedule and seeds that records have, as they say it themselves."""
    data = sorted({record.header.data.description for record in records})
    lengths = dict.fromkeys(
        f"batch {record.run.batch_size}: {record.run.epochs} epochs of {record.header.steps_per_epoch} steps, "
        + describe(record.run.schedule)
        for record in sorted(records, key=lambda record: -record.run.batch_size)
    )
    seeds = sorted({record.run.seed for record in records})
    named = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
    return "; ".join([*data, *lengths, named])


def circumstances(records: Sequence[Record]) -> list[str]:
    """Budget, versions and devices of some records, a line each."""
    headers = [record.header for record in records]
    versions = sorted({", ".join(f"{k} {v}" for k, v in h.versions.items()) for h in headers})
    devices = sorted({f"{machine(h)}, {h.threads} thread(s) a run" for h in headers})
    return [
        f"Data and budget: {budget(records)}",
        f"Versions: {'; '.join(versions)}",
        f"Device: {'; '.join(devices)}",
    ]


def machine(header: Header) -> str:
    """Device of a run with what decides its speed: how many there were, and the memory format if it is not torch's own.

    Examples:
        >>> given = {"device": "cuda (a card)", "devices": ("4 (ddp)",), "memory_format": "channels_last"}
        >>> machine(Header.model_construct(**given))
        'cuda (a card), devices: 4 (ddp), channels_last'
    """
    devices = f", devices: {', then '.join(header.devices)}" if header.devices else ""
    memory_format = f", {header.memory_format}" if header.memory_format else ""
    return header.device + devices + memory_format
