"""Commands of the reproduction for the command line: demo, list, run, report, pack.

Nothing heavy is imported before a command is called, so that ``--help`` answers at once.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options

if TYPE_CHECKING:
    from rich.console import Console

    from orthonorm_paper.experiments import Experiment
    from orthonorm_paper.records.files import Record
    from orthonorm_paper.records.run import Run
    from orthonorm_paper.training.execute import Settings

# What a shell says of a command that Ctrl-C ended.
_INTERRUPTED = 130


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the records, the table and the figure.")] = Path("results/demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Repeat the runs that are recorded already.")] = False,
    jobs: options.Jobs = 2,
) -> None:
    """Compare orthogonal weights with the baseline: train a network of 8 hidden layers on 5,000 digits, in minutes."""
    from rich.console import Console
    from rich.table import Table

    from orthonorm_paper.experiments import experiment
    from orthonorm_paper.records.writing import writing
    from orthonorm_paper.reports import demo as tables
    from orthonorm_paper.reports.markdown import circumstances
    from orthonorm_paper.training.execute import Settings, check_writable

    console = Console()
    check_writable(out)
    runs = experiment("demo").runs()
    if fresh:
        _forget(out, runs)
    records = _sweep(console, "demo", runs, out, Settings(device="cpu"), jobs, None)
    table = Table(title="Orthogonal weights against the baseline, 8 hidden layers of 100 units")
    for column in tables.COLUMNS:
        table.add_column(column, justify="left" if column == "method" else "right", no_wrap=column == "method")
    for row in tables.table_rows(records):
        table.add_row(*row)
    console.print(table)
    for line in (*tables.headline(records), *circumstances(records)):
        console.print(line, soft_wrap=True, highlight=False)
    with writing(out):
        paths = tables.write_demo(records, out)
    for path in paths:
        console.print(f"written: {path}", soft_wrap=True, highlight=False)


def list_(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of an experiment. Without it, all of them are listed.")
    ] = None,
    only: options.Only = None,
    results: options.Results = Path("results"),
    verbose: Annotated[
        bool, typer.Option("--verbose", help="With NAME, show also the layers that each method replaces, and each run.")
    ] = False,
) -> None:
    """List the paper's tables and figures with the command that runs each. With NAME, show how far that one is."""
    from rich.console import Console

    from orthonorm_paper.experiments import experiment, select

    from . import listing

    console = Console()
    if name is None:
        _show(console, listing.COLUMNS, listing.overview(results))
        console.print(
            "each of the paper's on synthetic data: orthonorm-paper run NAME --data synthetic", highlight=False
        )
        return
    entry = experiment(name)
    runs = select(entry.runs(), only or [])
    _print(console, listing.heading(entry, runs))
    common, columns, rows = listing.fold(listing.ONE, listing.summary(entry, runs, results / name))
    _print(console, [common] if common else [])
    _show(console, columns, rows)
    if verbose:
        _print(console, (*listing.replaced(runs), *listing.states(runs, results / name)))


def run(
    name: options.Name,
    only: options.Only = None,
    jobs: options.Jobs = 1,
    threads: options.Threads = 1,
    dask: options.Dask = None,
    device: options.Device = "auto",
    devices: options.Devices = 1,
    nodes: options.Nodes = 1,
    strategy: options.Strategy = "auto",
    precision: options.Precision = None,
    workers: options.Workers = 4,
    channels_last: options.ChannelsLast = False,
    checkpoint_minutes: options.CheckpointMinutes = None,
    data: options.Data = None,
    minutes: options.Minutes = None,
    learning_rates: options.LearningRates = None,
    epochs: options.Epochs = None,
    seeds: options.Seeds = None,
    dry_run: options.DryRun = False,
    results: options.Results = Path("results"),
) -> None:
    """Run an experiment and record it. Recorded runs are not repeated, and an interrupted run continues."""
    import time

    from rich.console import Console

    from orthonorm_paper.exceptions import UserError
    from orthonorm_paper.experiments import experiment
    from orthonorm_paper.experiments.derived.variation import at_precision, rates_of, varied
    from orthonorm_paper.training.execute import Settings
    from orthonorm_paper.training.processes.ranks import one_of_many

    from .closing_lines import ending, repeated
    from .estimate import estimate

    for option, value in (("minutes", minutes), ("checkpoint-minutes", checkpoint_minutes)):
        if value is not None and not value >= 0:
            raise UserError(f"{option} must be at least 0; got {value:g}.")
    given = [name, *repeated(data, only, precision, learning_rates, epochs, seeds)]
    if data == Path("synthetic"):
        name, data = f"{name.removesuffix('-synthetic')}-synthetic", None
    chosen = varied(at_precision(experiment(name), precision), rates_of(learning_rates), epochs, seeds)
    runs = _runs(chosen, results, only, data)
    if dry_run:
        _print(Console(), estimate(chosen.name, runs, results, jobs))
        return
    settings = Settings(
        device=device,  # pyright: ignore[reportArgumentType]  (it is checked there)
        threads=threads,
        data=None if data is None else data.absolute(),
        deadline=None if minutes is None else time.time() + 60 * minutes,
        checkpoint_seconds=None if checkpoint_minutes is None else 60 * checkpoint_minutes,
        devices=devices,
        nodes=nodes,
        strategy=strategy,  # pyright: ignore[reportArgumentType]  (it is checked there)
        workers=workers,
        channels_last=channels_last,
    )
    console = Console(quiet=one_of_many(settings))
    records = _sweep(console, chosen.name, runs, results / chosen.name, settings, jobs, dask)
    _print(console, ending(chosen.name, runs, records, results, given))


def report(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Name of an experiment with records. Without it, all of them are reported."
        ),
    ] = None,
    results: options.Results = Path("results"),
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the report. By default RESULTS/NAME/report, or RESULTS/report without NAME."),
    ] = None,
) -> None:
    """Write a report from the records, as Markdown and HTML: tables, figures, and which claims of the paper hold."""
    from rich.console import Console

    from orthonorm_paper.reports.publish import write_all, write_report

    console = Console()
    if name is None:
        paths = write_all(results, out or results / "report")
    else:
        paths = write_report(name, results / name, out or results / name / "report")
    for path in paths:
        console.print(f"written: {path}", soft_wrap=True, highlight=False)


def pack(
    name: options.Recorded,
    results: options.Results = Path("results"),
) -> None:
    """Pack the records of an experiment into one file, RESULTS/NAME.jsonl.gz. `run` and `report` read it too."""
    from orthonorm_paper.records.folders import pack as pack_folder

    print(f"written: {pack_folder(results / name)}")


def _runs(chosen: Experiment, results: Path, only: list[str] | None, data: Path | None) -> list[Run]:
    """The runs of an experiment that meet the conditions; says which methods have no learning rate left."""
    from orthonorm_paper.experiments.derived.tuned import planned

    from .closing_lines import repeated

    runs, left_out = planned(chosen, results, only, repeated(data))
    for method in left_out:
        print(f"{method} is left out: it diverged at every learning rate of {chosen.rates_from}")
    return runs


def _print(console: Console, lines: Iterable[str]) -> None:
    for line in lines:
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _show(console: Console, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    table.columns[0].no_wrap = True
    console.print(table, highlight=False)


def _forget(folder: Path, runs: list[Run]) -> None:
    from orthonorm_paper.exceptions import UserError
    from orthonorm_paper.records.files import record_path
    from orthonorm_paper.records.folders import packed_path

    if packed_path(folder).exists():
        raise UserError(f"{packed_path(folder)} holds records that --fresh would run again: move it away")
    for one in runs:
        record_path(folder, one).unlink(missing_ok=True)
    shutil.rmtree(folder / ".work", ignore_errors=True)


@contextlib.contextmanager
def _hearing_sigterm() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does: else the processes of its runs would go on without it."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def _sweep(
    console: Console,
    title: str,
    runs: list[Run],
    folder: Path,
    settings: Settings,
    jobs: int,
    dask: str | None,
) -> list[Record]:
    """Sweep under a progress bar that counts epochs, read from the files of all processes."""
    from orthonorm_paper.training.sweep import check_sweep, sweep

    from .progress import show_progress

    check_sweep(runs, folder, settings, jobs, dask)
    try:
        with _hearing_sigterm(), show_progress(console, title, runs, folder):
            return sweep(runs, folder, settings, jobs=jobs, dask=dask)
    except KeyboardInterrupt:
        print(
            f"orthonorm-paper: interrupted; what is recorded in {folder} is kept, and the same command continues",
            file=sys.stderr,
        )
        raise typer.Exit(_INTERRUPTED) from None
