"""One process for each device of this machine, watched: if one dies, all end, and the error says which and how."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, cast

import torch
from torch.multiprocessing.spawn import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    start_processes,
)

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.files import Record
from orthonorm_paper.training.settings import Settings

# torchrun's launcher, which can be called from Python too, answers when the last task is done; a sweep shows and judges
# its runs as they end. A start takes it 0.6 s, and 0.3 s here (two processes, forkserver). What torch offers below it,
# `start_processes`, is what starts and watches them.

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
        UserError: what a process reported; several nodes without the variables that say where they are.
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
        try:
            with results.open("rb") as answers:
                running = True
                while running:
                    running = not _joined(context, results)
                    yield from _answers(answers)
        finally:
            _end(cast("list[BaseProcess]", context.processes))


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
    """Where a process leaves what it reports to the user."""
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


def _joined(context: ProcessContext, results: Path) -> bool:
    """Wait a moment; whether all processes have ended. Where one failed, all are ended, and the error says which."""
    try:
        return context.join(_LOOK_EVERY, _GRACE)
    except ProcessRaisedException as error:
        print(error.msg, file=sys.stderr, flush=True)
        number, cause = error.error_index, error.msg.rstrip().splitlines()[-1]
    except ProcessExitedException as error:
        number, cause = error.error_index, f"exit code {error.exit_code}"
        if error.signal_name is not None:
            cause = f"signal {-error.exit_code} ({error.signal_name})"
    for member in range(len(context.processes)):
        if (complaint := _complaint(results, member)).exists():
            raise pickle.loads(complaint.read_bytes())
    raise ProcessDied(
        f"process {number} of {len(context.processes)} ended with {cause}; all were stopped, and the same command "
        "continues from the last checkpoint"
    )


def _end(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        if process.is_alive():
            process.kill()
    for process in processes:
        process.join()
