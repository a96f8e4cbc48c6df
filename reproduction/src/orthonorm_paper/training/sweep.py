"""Many runs: in this process, in parallel processes, or on a Dask cluster, by one function."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import joblib

from orthonorm_paper.data import check_dataset
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.methods.table import method
from orthonorm_paper.records.files import Record, work_path, write_record
from orthonorm_paper.records.folders import recorded_ids
from orthonorm_paper.records.run import Run

from .execute import Busy, Settings, check_writable, execute
from .processes import ranks
from .processes.launch import launch

Task = tuple[Run, Path, Settings, bool]


def sweep(
    runs: Sequence[Run],
    folder: Path,
    settings: Settings,
    *,
    jobs: int = 1,
    dask: str | None = None,
) -> list[Record]:
    """Records of all runs, in the order of the runs; those already recorded are only read.

    A sweep may be killed and started again, and two may share a folder: each run has a lock, and a
    run that another sweep is at is waited for at the end. Past the deadline of the settings nothing
    new begins; the records of what was not run are missing from the result.

    Args:
        runs: what to run; names are checked before anything begins.
        folder: results folder.
        settings: how to execute each run.
        jobs: processes on this machine, each with ``settings.threads`` threads.
        dask: address of a scheduler, as ``tcp://host:8786``, instead of processes here.

    Raises:
        UserError: an unknown name, a folder that cannot be written, no scheduler at the address.
    """
    check_sweep(runs, folder, settings, jobs, dask)
    folder = folder.absolute()
    found: dict[Run, Record] = {}
    with _executor(jobs, dask, settings) as execute_all:
        # What another sweep holds is left for a second pass that waits for it.
        for wait in (False, True):
            tasks = [(run, folder, settings, wait) for run in runs if run not in found]
            for record in execute_all(tasks):
                if record is None:
                    continue
                found[record.run] = record
                _keep(folder, record)
    return [found[run] for run in dict.fromkeys(runs) if run in found]


def check_sweep(runs: Sequence[Run], folder: Path, settings: Settings, jobs: int, dask: str | None) -> None:
    """A ``UserError`` for what ``sweep`` cannot begin with; the folder is created."""
    if jobs < 1:
        raise UserError(f"jobs must be at least 1; got {jobs}.")
    check_names(runs)
    check_processes(runs, settings, jobs, dask)
    check_writable(folder)


def check_names(runs: Sequence[Run]) -> None:
    """A ``UserError`` for the first run with a data set or method that no table has."""
    for run in runs:
        method(run.method, run.model, run.method_arguments)
        check_dataset(run.dataset)


def check_processes(runs: Sequence[Run], settings: Settings, jobs: int, dask: str | None) -> None:
    """A ``UserError`` for a batch that the devices cannot share, or where both runs and devices would be spread."""
    if settings.processes == 1:
        return
    if jobs > 1 or dask is not None:
        raise UserError("jobs and dask spread runs, devices and nodes spread each run: give one of the two")
    for run in runs:
        if run.batch_size % settings.processes:
            raise UserError(
                f"every batch is divided evenly among the devices: {settings.processes} do not divide the "
                f"batch_size {run.batch_size} of {run.id}"
            )


def epochs_done(folder: Path, runs: Sequence[Run]) -> int:
    """Epochs recorded of the runs, those in progress included; a finished run counts in full."""
    done, recorded = 0, recorded_ids(folder)
    for run in runs:
        if run.id in recorded:
            done += run.epochs
            continue
        with contextlib.suppress(OSError):
            lines = work_path(folder, run, ".jsonl.part").read_bytes().count(b'"kind": "epoch"')
            done += min(lines, run.epochs)
    return done


def perform(task: Task) -> Record | None:
    """One task of a sweep; None where another process is at it or the deadline has passed."""
    run, folder, settings, wait = task
    ranks.join(settings)
    if ranks.agree(lambda: settings.deadline is not None and time.time() > settings.deadline):
        return None
    try:
        return execute(run, folder, settings, wait=wait)
    except Busy:
        return None


def _keep(folder: Path, record: Record) -> None:
    """Write a record that came from a machine with another disk."""
    if record.outcome != "stopped" and record.run.id not in recorded_ids(folder):
        write_record(folder, record)


ExecuteAll = Callable[[list[Task]], Iterator[Record | None]]


@contextlib.contextmanager
def _executor(jobs: int, dask: str | None, settings: Settings) -> Iterator[ExecuteAll]:
    if dask is not None:
        with _dask_executor(dask) as execute_all:
            yield execute_all
    elif settings.processes > 1 and ranks.launcher() is None:
        yield lambda tasks: launch(perform, tasks, settings) if tasks else iter(())
    elif jobs == 1:
        yield lambda tasks: map(perform, tasks)
    else:
        with joblib.parallel_config("loky", inner_max_num_threads=settings.threads):
            parallel = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered")
            yield lambda tasks: iter(parallel(map(joblib.delayed(perform), tasks)) or ())


@contextlib.contextmanager
def _dask_executor(address: str) -> Iterator[ExecuteAll]:
    from distributed import Client, as_completed

    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError, TypeError) as error:
        raise UserError(
            f"no Dask scheduler answers at {address} ({error}): start one with `dask scheduler`, "
            "and workers with `dask worker ADDRESS --nthreads 1`"
        ) from None

    def execute_all(tasks: list[Task]) -> Iterator[Record | None]:
        # A run that was stopped must run again when asked for again: results are not reused.
        futures = client.map(perform, tasks, pure=False)
        for future in as_completed(futures):
            yield future.result()

    with client:
        yield execute_all
