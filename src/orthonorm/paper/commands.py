"""Commands of the reproduction for the command line: demo, list, run, report.

Nothing heavy is imported before a command is called, so that ``--help`` answers at once.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from orthonorm.paper.config import Run
    from orthonorm.paper.records import Record
    from orthonorm.paper.train import Settings

Jobs = Annotated[int, typer.Option(help="Runs at the same time, each in a process of its own.")]
Results = Annotated[Path, typer.Option(help="Folder of the results; each experiment has its own inside.")]
Only = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=VALUE,...", help="Keep some runs, as method=OLM,plain; repeatable."),
]


def demo(
    out: Annotated[Path, typer.Option(help="Folder of the records, table and figure.")] = Path("results/demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what is recorded.")] = False,
    jobs: Jobs = 2,
) -> None:
    """Train the paper's 8-layer network on 5,000 real digits: OLM against plain, in minutes."""
    from rich.console import Console
    from rich.table import Table

    from orthonorm.paper import demo as tables
    from orthonorm.paper.experiments import experiment
    from orthonorm.paper.markdown import circumstances
    from orthonorm.paper.train import Settings, check_writable

    console = Console()
    check_writable(out)
    runs = experiment("demo").runs()
    if fresh:
        _forget(out, runs)
    records = _sweep(console, "demo", runs, out, Settings(device="cpu"), jobs, None)
    table = Table(title="OLM against plain, 8 hidden layers of 100 units")
    for column in tables.COLUMNS:
        table.add_column(column, justify="left" if column == "method" else "right")
    for row in tables.table_rows(records):
        table.add_row(*row)
    console.print(table)
    for line in (tables.headline(records), *circumstances(records)):
        console.print(line, soft_wrap=True, highlight=False)
    for path in tables.write_demo(records, out):
        console.print(f"written: {path}", soft_wrap=True, highlight=False)


def list_(
    name: Annotated[str | None, typer.Argument(help="An experiment; all of them if left out.")] = None,
    only: Only = None,
    results: Results = Path("results"),
) -> None:
    """Show the experiments, or the runs of one and how far they are."""
    from rich.console import Console
    from rich.table import Table

    from orthonorm.paper.experiments import EXPERIMENTS, experiment, select
    from orthonorm.paper.records import read_record, record_path

    console = Console()
    if name is None:
        table = Table("name", "runs", "recorded", "what", "data and budget")
        for entry in EXPERIMENTS.values():
            runs = entry.runs()
            done = sum(record_path(results / entry.name, run).exists() for run in runs)
            table.add_row(entry.name, str(len(runs)), str(done), entry.title, entry.budget)
        console.print(table)
        return
    for run in select(experiment(name).runs(), only or []):
        path = record_path(results / name, run)
        state = read_record(path).outcome_text if path.exists() else "not run"
        console.print(f"{run.id}  {state}", soft_wrap=True, highlight=False)


def run(
    name: Annotated[str, typer.Argument(help="An experiment of `orthonorm list`.")],
    only: Only = None,
    jobs: Jobs = 1,
    threads: Annotated[int, typer.Option(help="Threads of each run.")] = 1,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Scheduler of a Dask cluster, as tcp://host:8786."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    devices: Annotated[int, typer.Option(help="Devices of each node; every batch is divided among all.")] = 1,
    nodes: Annotated[int, typer.Option(help="Machines; give the command on each by torchrun or srun.")] = 1,
    strategy: Annotated[str, typer.Option(help="auto, ddp, or fsdp, which divides the weights too.")] = "auto",
    precision: Annotated[
        str | None,
        typer.Option(help="As bf16-mixed: decides results, so the runs are those of NAME-PRECISION, in its folder."),
    ] = None,
    workers: Annotated[int, typer.Option(help="Processes that read images, of each device.")] = 4,
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Memory format of convolutions.")] = False,
    checkpoint_minutes: Annotated[
        float | None,
        typer.Option(help="Between checkpoints in an epoch; half of one, and ten for images read from files."),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of the data sets' files; `data` if left out.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Save and stop after so long; a later call continues.")] = None,
    results: Results = Path("results"),
) -> None:
    """Run an experiment; what is recorded is not run again, what was cut off continues."""
    import time

    from rich.console import Console

    from orthonorm.paper.experiments import experiment, select
    from orthonorm.paper.group import one_of_many
    from orthonorm.paper.train import Settings
    from orthonorm.paper.variation import at_precision

    chosen = at_precision(experiment(name), precision)
    name, runs = chosen.name, select(chosen.runs(), only or [])
    deadline = None if minutes is None else time.time() + 60 * minutes
    settings = Settings(
        device=device,
        threads=threads,
        data=None if data is None else data.absolute(),
        deadline=deadline,
        checkpoint_seconds=None if checkpoint_minutes is None else 60 * checkpoint_minutes,
        devices=devices,
        nodes=nodes,
        strategy=strategy,
        workers=workers,
        channels_last=channels_last,
    )
    console = Console(quiet=one_of_many(settings))
    records = _sweep(console, name, runs, results / name, settings, jobs, dask)
    outcomes = [record.outcome for record in records]
    counts = ", ".join(f"{outcomes.count(word)} {word}" for word in dict.fromkeys(outcomes))
    missing = len(runs) - len(records)
    console.print(
        f"{len(records)} of {len(runs)} runs recorded in {results / name}: {counts or 'none'}"
        + (f"; {missing} not begun" if missing else ""),
        soft_wrap=True,
        highlight=False,
    )


def report(
    name: Annotated[str, typer.Argument(help="An experiment with records.")],
    results: Results = Path("results"),
    out: Annotated[Path | None, typer.Option(help="Folder of the report; RESULTS/NAME/report if left out.")] = None,
) -> None:
    """Write figures, tables and the paper's claims, from the records alone."""
    from rich.console import Console

    from orthonorm.paper.publish import write_report

    console = Console()
    for path in write_report(name, results / name, out or results / name / "report"):
        console.print(f"written: {path}", soft_wrap=True, highlight=False)


def _forget(folder: Path, runs: list[Run]) -> None:
    from orthonorm.paper.records import record_path

    for one in runs:
        record_path(folder, one).unlink(missing_ok=True)
    shutil.rmtree(folder / ".work", ignore_errors=True)


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
    from orthonorm.paper.progress import show_progress
    from orthonorm.paper.sweep import sweep

    with show_progress(console, title, runs, folder):
        return sweep(runs, folder, settings, jobs=jobs, dask=dask)
