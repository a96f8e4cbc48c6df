"""`write_report` and `write_all`: figures, tables and verdicts of experiments, from their records alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.files import Record
from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.variations import base_name, other_size
from orthonorm_paper.reports.figures.learning_rates import draw_learning_rates, learning_rates_text
from orthonorm_paper.reports.figures.losses import draw_omdsm
from orthonorm_paper.reports.paper_numbers import paper_numbers
from orthonorm_paper.reports.tables.layouts import FULL, REDUCED, SYNTHETIC, Layout, layouts, names
from orthonorm_paper.reports.tables.omdsm import omdsm_text

from .demo import write_demo
from .forms import write_forms
from .overview import Section, Writer, overview
from .page import page
from .paired import COMPARED, write_paired
from .sections import layout_text, write_layout
from .sequences import write_sequences

_MNIST = {"omdsm": FULL, "omdsm-5k": REDUCED, "omdsm-5k-constant": REDUCED, "omdsm-synthetic": SYNTHETIC}
_SEQUENCES = ("copying", "rows-5k")


def write_omdsm(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write ``report.md`` of the MNIST comparison and its figures."""
    markdown = folder / "report.md"
    markdown.write_text(omdsm_text(records), encoding="utf-8")
    return [markdown, *draw_omdsm(records, folder)]


def sections() -> list[Section]:
    """Every section of the overview, in the paper's order."""
    title = f"# omdsm: {paper_numbers()['omdsm']['title']}"
    found = [
        Section(name, variant, (name,), write_omdsm, (lambda: title) if variant == FULL else None)
        for name, variant in _MNIST.items()
    ]
    found.append(Section("riemannian-forms", REDUCED, ("omdsm-5k", "omdsm-5k-constant"), write_forms))
    for name, layout in layouts().items():
        found += _of_layout(name, layout)
    found += [Section(name, REDUCED, (name,), write_sequences) for name in _SEQUENCES]
    found += [Section(name, REDUCED, (name,), write_paired) for name in COMPARED]
    return found


def _of_layout(name: str, layout: Layout) -> Iterator[Section]:
    """A section for the experiments at the paper's size, for each reduced one, and for the synthetic ones."""
    variants = names(layout)
    for variant in dict.fromkeys(variants.values()):
        own = tuple(experiment for experiment, its in variants.items() if its == variant)
        groups = [(one, (one,)) for one in own]
        if len(own) > 1 and variant != REDUCED:
            groups = [(name if variant == FULL else f"{name}-{variant}", own)]
        for title, experiments in groups:
            write = partial(write_layout, title, layout, variant)
            without = partial(layout_text, title, layout, variant, ()) if variant == FULL else None
            yield Section(title, variant, experiments, write, without)


def report_names() -> list[str]:
    """Experiments that ``write_report`` knows."""
    return list(dict.fromkeys(["demo", *(name for section in sections() for name in section.experiments)]))


def write_report(name: str, records_folder: Path, out: Path) -> list[Path]:
    """Write the report of an experiment; returns the paths, the Markdown text first, the HTML page last.

    A pure function of the records and the paper's numbers: no date, no machine, no random number.

    Args:
        name: the experiment.
        records_folder: holds its finished records, or has the packed file of them beside it.
        out: folder of the report; created.

    Raises:
        UserError: no report for that name, no record, a broken record, or one of another
            experiment.
    """
    write = _writer(name)
    records = _records(name, records_folder)
    if not records:
        raise UserError(f"{records_folder} holds no record: first `orthonorm-paper run {name}`")
    with _writing_to(out):
        out.mkdir(parents=True, exist_ok=True)
        paths = write(records, out)
        return [*paths, _write_page(paths[0])]


def write_all(results: Path, out: Path) -> list[Path]:
    """Write all the paper's tables and figures as one Markdown text and one HTML page.

    Each experiment with records has its own ``report.md`` and pictures in a folder of its own.

    Args:
        results: holds a folder of records or a packed file for each experiment.
        out: folder of the report; created.

    Returns:
        ``report.md``, ``report.html``, then what lies in the folders.

    Raises:
        UserError: no record at all, a broken one, or one of another experiment than its folder says.
    """
    found = [(s, [r for name in s.experiments for r in _records(name, results / name)]) for s in sections()]
    if not any(records for _, records in found):
        raise UserError(
            f"{results} holds no folder with records: first `orthonorm-paper run NAME`, see `orthonorm-paper list`"
        )
    with _writing_to(out):
        return _write_all(found, out)


@contextlib.contextmanager
def _writing_to(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"report cannot be written to {out}: {error.strerror}; make room or give another --out"
        ) from None


def _write_all(found: Sequence[tuple[Section, list[Record]]], out: Path) -> list[Path]:
    shown, paths = [], []
    for section, records in found:
        text = None
        if records:
            folder = out / section.name
            folder.mkdir(parents=True, exist_ok=True)
            written = section.write(records, folder)
            text, paths = written[0].read_text(encoding="utf-8"), [*paths, *written]
        shown.append((section, text))
    markdown = out / "report.md"
    # Some experiments are shown in two sections.
    every = list({record.run: record for _, records in found for record in records}.values())
    pictures = draw_learning_rates(every, out / "learning-rates")
    first = learning_rates_text(every, pictures[0].name) if pictures else []
    markdown.write_text(overview(shown, every, first), encoding="utf-8")
    return [markdown, _write_page(markdown), *pictures, *paths]


def _writer(name: str) -> Writer:
    if name == "demo":
        return write_demo
    # A variation is shown as what it varies.
    base = base_name(name) if name not in report_names() else name
    if base == "demo":
        return write_demo
    section = next((section for section in sections() if base in section.experiments), None)
    if section is None:
        raise UserError(f"experiment must be one of {', '.join(report_names())}; got {name!r}.")
    layout = next((layout for layout in layouts().values() if base in names(layout)), None)
    if layout is None:
        return section.write
    variant = REDUCED if other_size(name) and section.variant == FULL else section.variant
    # Of several that share a table, the others have dashes.
    return partial(write_layout, name, layout, variant)


def _records(name: str, folder: Path) -> list[Record]:
    records = read_folder(folder)
    strangers = sorted({r.run.experiment for r in records} - {name})
    if strangers:
        raise UserError(f"{folder} holds records of {', '.join(strangers)}, not of {name}")
    return records


def _write_page(markdown: Path) -> Path:
    path = markdown.with_name("report.html")
    path.write_text(page(markdown.read_text(encoding="utf-8"), markdown.parent), encoding="utf-8")
    return path
