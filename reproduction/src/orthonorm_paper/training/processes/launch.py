"""One process for each device of this machine, watched: if one dies, all end, and the error says which and how."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

import torch
from torch.multiprocessing.spawn import start_processes

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.files import Record
from orthonorm_paper.training.settings import Settings

# torchrun's launcher, which can be called from Python too, answers when the last task is done; a sweep shows and judges
# its runs as they end. A start takes it 0.6 s, and 0.3 s here (two processes, forkserver). What torch offers below it,
# `start_processes`, is what starts them.

Work = Callable[[Any], Record | None]

_LOOK_EVERY = 0.1
# For the others to notice and say their errors too, and then to end by themselves.
_GRACE = 2.0


class ProcessDied(UserError):
    """A process of a run was killed or failed; the run continues from its checkpoint when it is started again."""


def launch(work: Work, tasks: Sequence[Any], settings: Settings) -> Iterator[Record | None]:
    """What ``work`` gives for each task, done by all processes of the run together.

    Args:
        work: a function of a module, called with each task in each process; the first process's answers count.
        tasks: in the order in which they are done.
        settings: number of devices and nodes.

    Raises:
        ProcessDied: a process was killed or failed.
        UserError: what a process was told; several nodes without the variables that say where they are.
    """
    places = _places(settings)
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        results.touch()
        context = start_processes(
            _member,
            (work, list(tasks), places, results),
            settings.devices,
            join=False,
            start_method=_start_method(work.__module__),
        )
        assert context is not None
        processes, error_files = cast("list[BaseProcess]", context.processes), cast("list[str]", context.error_files)
        try:
            with results.open("rb") as answers:
                running = True
                while running:
                    running = _watch(processes, error_files, results)
                    yield from _answers(answers)
        finally:
            _end(processes)


def _start_method(module: str) -> str:
    """A server that has imported the module once and is forked, where the system has it; it ends with this process."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return "spawn"
    multiprocessing.get_context("forkserver").set_forkserver_preload([module])
    return "forkserver"


def _places(settings: Settings) -> list[dict[str, str]]:
    """The variables of each process of this node, those that torchrun sets."""
    names = ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK")
    where = {name: os.environ.get(name) for name in names}
    if settings.nodes == 1:
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "NODE_RANK": "0"}
    missing = [name for name, value in where.items() if value is None]
    if missing:
        raise UserError(
            f"nodes {settings.nodes}: this node does not know its place ({', '.join(missing)} not set): start the "
            "command by torchrun or srun, or on every node under MASTER_ADDR, MASTER_PORT and NODE_RANK"
        )
    node = int(str(where["NODE_RANK"]))
    common = {"WORLD_SIZE": str(settings.processes), "GROUP_RANK": str(node)} | {k: str(v) for k, v in where.items()}
    return [
        common | {"LOCAL_RANK": str(local), "RANK": str(node * settings.devices + local)}
        for local in range(settings.devices)
    ]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _member(local: int, work: Work, tasks: list[Any], places: list[dict[str, str]], results: Path) -> None:
    """Body of a process."""
    os.environ.update(places[local])
    try:
        for task in tasks:
            record = work(task)
            if local == 0:
                with results.open("ab") as file:
                    file.write(pickle.dumps(record).hex().encode() + b"\n")
    except UserError as error:
        _complaint(results, local).write_bytes(pickle.dumps(error))
        raise SystemExit(2) from None
    # A group of gloo ends with the process: before torch 2.8, destroying it waits for threads that wait for this one.
    if torch.distributed.is_initialized() and torch.distributed.get_backend() != "gloo":
        torch.distributed.destroy_process_group()


def _complaint(results: Path, local: int) -> Path:
    """Where a process leaves what a user is to be told."""
    return results.with_suffix(f".{local}")


def _answers(file: Any) -> Iterator[Record | None]:
    """Whole lines that the first process has written since."""
    while True:
        start = file.tell()
        line = file.readline()
        if not line.endswith(b"\n"):
            file.seek(start)
            return
        yield pickle.loads(bytes.fromhex(line.decode()))


def _watch(processes: Sequence[BaseProcess], error_files: Sequence[str], results: Path) -> bool:
    """Wait a moment; whether processes are running. A failure is an error, at once if a process was killed.

    One that failed by itself may have been cut off by another, which is given time to leave its traceback too.
    """
    time.sleep(_LOOK_EVERY)
    if all(process.exitcode in (None, 0) for process in processes):
        return any(process.exitcode is None for process in processes)
    until = time.monotonic() + _GRACE
    while min((codes := _failures(processes)).values()) > 0 and len(codes) < len(processes):
        if time.monotonic() > until:
            break
        time.sleep(_LOOK_EVERY)
    for number in codes:
        if (complaint := _complaint(results, number)).exists():
            raise pickle.loads(complaint.read_bytes())
    number = min(codes, key=lambda number: (codes[number] > 0, _time_of(error_files[number])))
    raise ProcessDied(
        f"process {number} of {len(processes)} ended with {_cause(codes[number], error_files[number])}; all were "
        "stopped, and the same command continues from the last checkpoint"
    )


def _failures(processes: Sequence[BaseProcess]) -> dict[int, int]:
    """Exit code of each process that failed; a negative one is the signal that killed it."""
    return {number: process.exitcode for number, process in enumerate(processes) if process.exitcode}


def _time_of(error_file: str) -> float:
    """When a process left its traceback; the first one to do so is the cause of the others' broken connections."""
    try:
        return os.stat(error_file).st_mtime
    except OSError:
        return math.inf


def _cause(code: int, error_file: str) -> str:
    """How a process ended; the traceback that it left is printed."""
    if code < 0:
        return f"signal {-code} ({signal.Signals(-code).name})"
    with contextlib.suppress(OSError, pickle.UnpicklingError, EOFError):
        text = pickle.loads(Path(error_file).read_bytes())
        print(text, file=sys.stderr, flush=True)
        return text.rstrip().splitlines()[-1]
    return f"exit code {code}"


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join()
