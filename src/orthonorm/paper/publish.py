"""`write_report`: figures, tables and verdicts of an experiment, from its records alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from orthonorm.paper.demo import write_demo
from orthonorm.paper.errors import UserError
from orthonorm.paper.plots import draw_omdsm
from orthonorm.paper.records import Record, read_folder
from orthonorm.paper.report import omdsm_text
from orthonorm.paper.sequence_report import write_sequences


def write_omdsm(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write ``report.md`` of the MNIST comparison and its figures."""
    markdown = folder / "report.md"
    markdown.write_text(omdsm_text(records), encoding="utf-8")
    return [markdown, *draw_omdsm(records, folder)]


REPORTS: dict[str, Callable[[Sequence[Record], Path], list[Path]]] = {
    "demo": write_demo,
    "omdsm": write_omdsm,
    "omdsm-5k": write_omdsm,
    "omdsm-5k-constant": write_omdsm,
    "copying": write_sequences,
    "rows-5k": write_sequences,
}


def write_report(name: str, records_folder: Path, out: Path) -> list[Path]:
    """Write the report of an experiment; returns the paths, the Markdown text first.

    A pure function of the records and the paper's numbers: no date, no machine, no random number.

    Args:
        name: the experiment.
        records_folder: holds its finished records.
        out: folder of the report; created.

    Raises:
        UserError: no report for that name, no record, a broken record, or one of another
            experiment.
    """
    if name not in REPORTS:
        raise UserError(f"experiment is one of {', '.join(REPORTS)}, got {name!r}")
    records = read_folder(records_folder)
    if not records:
        raise UserError(f"{records_folder} holds no record: first `orthonorm run {name}`")
    strangers = sorted({r.run.experiment for r in records} - {name})
    if strangers:
        raise UserError(f"{records_folder} holds records of {', '.join(strangers)}, not of {name}")
    try:
        out.mkdir(parents=True, exist_ok=True)
        return REPORTS[name](records, out)
    except OSError as error:
        raise UserError(f"report cannot be written to {out}: {error.strerror}") from None
