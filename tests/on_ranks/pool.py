"""Four processes that stay, and run a function on the first R of them as ranks of a gloo group of its own.

Starting a process that imports torch takes seconds, so the tests of a session share these. Every wait is bounded.
"""

import gc
import multiprocessing
import multiprocessing.connection
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

PROCESSES = 4
SECONDS = 60


def _serve(pipe: multiprocessing.connection.Connection, rank: int) -> None:
    torch.set_num_threads(1)
    while (job := pipe.recv()) is not None:
        function, args, world, path = job
        try:
            torch.manual_seed(0)
            if path is not None:
                dist.init_process_group(
                    "gloo",
                    init_method=f"file://{path}",
                    rank=rank,
                    world_size=world,
                    timeout=timedelta(seconds=SECONDS / 2),
                )
            answer = (True, function(*args))
        except Exception:
            answer = (False, traceback.format_exc())
        finally:
            # Destroying a gloo group whose models wait to be collected can hang (torch 2.6), or abort at exit.
            gc.collect()
            if dist.is_initialized():
                dist.destroy_process_group()
        pipe.send(answer)


class Pool:
    """The processes; `run` gives what the function returned on each rank."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipes, self.processes = [], []
        for rank in range(PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, rank), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)

    def run(
        self, world: int, function: Callable[..., Any], *args: Any, group: bool = True, numbered: bool = False
    ) -> list[Any]:
        """Run `function(*args)` on `world` ranks, with a process group of them unless told otherwise.

        Where `numbered`, the function gets its rank after the first argument.
        """
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "store") if group else None
            for rank, pipe in enumerate(self.pipes[:world]):
                given = (args[0], rank, *args[1:]) if numbered else args
                pipe.send((function, given, world, path))
            until = time.monotonic() + SECONDS
            answers = [self._receive(pipe, until) for pipe in self.pipes[:world]]
        failed = [f"rank {rank}: {answer}" for rank, (well, answer) in enumerate(answers) if not well]
        if failed:
            raise RuntimeError("\n".join(failed))
        return [answer for _, answer in answers]

    def _receive(self, pipe: multiprocessing.connection.Connection, until: float) -> tuple[bool, Any]:
        if pipe.poll(max(0.0, until - time.monotonic())):
            return pipe.recv()
        self.close()
        raise TimeoutError(f"a rank gave no answer within {SECONDS} s")

    def close(self) -> None:
        """End the processes."""
        for pipe, process in zip(self.pipes, self.processes, strict=True):
            with suppress(OSError):
                pipe.send(None)
            process.join(0.5)
            if process.is_alive():
                process.kill()
            process.join(5)
