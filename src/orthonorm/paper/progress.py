"""Progress bar of a sweep, from what its processes have written so far."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from orthonorm.paper.config import Run
from orthonorm.paper.grammar import counted
from orthonorm.paper.records import record_path
from orthonorm.paper.sweep import epochs_done

_SECONDS = 0.5


@contextlib.contextmanager
def show_progress(console: Console, title: str, runs: Sequence[Run], folder: Path) -> Iterator[None]:
    """Show epochs done of all runs until the block ends; runs may be anywhere that shares the folder."""
    pending = [run for run in runs if not record_path(folder, run).exists()]
    if not pending:
        all_of_them = "the 1 run is" if len(runs) == 1 else f"all {len(runs)} runs are"
        console.print(f"{title}: {all_of_them} recorded in {folder}", soft_wrap=True)
        yield
        return
    total = sum(run.epochs for run in pending)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(f"{title}, {counted(len(pending), 'run')}", total=total)
        ended = threading.Event()

        def update() -> None:
            progress.update(task, completed=epochs_done(folder, pending))

        def watch() -> None:
            while not ended.wait(_SECONDS):
                update()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            update()
