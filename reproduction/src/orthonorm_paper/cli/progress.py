"""Progress bar of a sweep, from what its processes have written so far."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
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

from orthonorm_paper.records.counting import counted
from orthonorm_paper.records.folders import recorded_ids
from orthonorm_paper.records.run import Run
from orthonorm_paper.training.sweep import epochs_done

_SECONDS = 0.5
_SECONDS_A_LINE = 10.0


@contextlib.contextmanager
def show_progress(console: Console, title: str, runs: Sequence[Run], folder: Path) -> Iterator[None]:
    """Show epochs done of all runs until the block ends; runs may be anywhere that shares the folder.

    On a terminal a bar; in a file, where a bar would be shown at the end only, a line now and then.
    """
    recorded = recorded_ids(folder)
    pending = [run for run in runs if run.id not in recorded]
    if not pending:
        all_of_them = "the 1 run is" if len(runs) == 1 else f"all {len(runs)} runs are"
        console.print(f"{title}: {all_of_them} recorded in {folder}", soft_wrap=True)
        yield
        return
    total = sum(run.epochs for run in pending)
    if not console.is_terminal:
        with _lines(console, f"{title}, {counted(len(pending), 'run')}", pending, folder, total):
            yield
        return
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
        with _called_every(_SECONDS, lambda: progress.update(task, completed=epochs_done(folder, pending))):
            yield


@contextlib.contextmanager
def _lines(console: Console, title: str, pending: Sequence[Run], folder: Path, total: int) -> Iterator[None]:
    """Print how far the runs are, at once and whenever an epoch has been added since the last line."""
    began = time.monotonic()
    shown = -1

    def show() -> None:
        nonlocal shown
        done = epochs_done(folder, pending)
        if done != shown:
            shown = done
            text = f"{title}: {done} of {counted(total, 'epoch')} after {time.monotonic() - began:.0f} s"
            console.print(text, soft_wrap=True, highlight=False, markup=False)
            console.file.flush()

    show()
    with _called_every(_SECONDS_A_LINE, show):
        yield


@contextlib.contextmanager
def _called_every(seconds: float, update: Callable[[], None]) -> Iterator[None]:
    """Call a function now and then until the block ends, and once more there."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(seconds):
            update()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        update()
