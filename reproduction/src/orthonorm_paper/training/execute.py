"""`execute`: one run from its description to its record, on Lightning's Trainer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import filelock
import torch
from torch import nn

import orthonorm as on
from orthonorm_paper.data import Dataset, ImageFolders, load_data
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.methods.released import ReleasedSGD
from orthonorm_paper.methods.table import method
from orthonorm_paper.models import build_model
from orthonorm_paper.records.files import (
    COMPLETED,
    DIVERGED,
    STOPPED,
    End,
    Record,
    RecordWriter,
    work_path,
)
from orthonorm_paper.records.folders import find_record
from orthonorm_paper.records.lines import Outcome, finite
from orthonorm_paper.records.run import Run
from orthonorm_paper.records.writing import clear, writing

from .batch_norm import share_batch_norm
from .checkpoint_file import begun
from .lightning_module import Diverged, TrainingModule
from .loader import EpochLoader, Loader
from .processes import ranks
from .processes.launch import launch
from .random_state import seed_everything
from .record_header import header_of, now
from .recorder import Recorder, Stopped
from .settings import Settings as Settings
from .streaming import StreamingLoader
from .trainer import make_trainer, quiet

# Generators and thread counts belong to the process: runs in threads of one process (a Dask worker
# has several by default) take turns, or they would draw each other's random numbers.
_ONE_RUN = threading.Lock()


# For another process to say that it holds the run, while those of this one wait together.
_ASK_EVERY = 5.0


class Busy(UserError):
    """Another process is at this run."""


def execute(run: Run, folder: Path, settings: Settings | None = None, *, wait: bool = True) -> Record:
    """The record of a run: read if it is there, else trained, continuing from a checkpoint.

    A run that diverges ends with that outcome. One that is stopped by its settings ends as
    "stopped"; its record is returned but not kept, and the next call continues it.

    On several devices every batch is divided among as many processes, which are started here unless a launcher did.
    Gradients and batch normalisation are means over the whole batch, and order and augmentation are those of one
    process: each step is the same to rounding, which many steps magnify as a change of threads does. Only dropout draws
    other numbers, in each process its own.
    The first process writes record and checkpoints; they are as one process's, and any number of devices continues.

    Args:
        run: what to train.
        folder: results folder; work in progress lies in its ``.work``. Several nodes share it.
        settings: how to train it.
        wait: wait for another process that is at this run, instead of raising ``Busy``.

    Raises:
        UserError: a name that no table has, data that is missing, a folder not to be written.
        Busy: ``wait`` is False and another process holds the run.
        ProcessDied: one of the processes of the run was killed or failed.
    """
    settings = settings or Settings()
    if settings.processes > 1 and not ranks.joined() and ranks.launcher() is None:
        (record,) = launch(_of_task, [(run, folder, settings, wait)], settings)
        assert record is not None
        return record
    ranks.join(settings)
    with _claimed(run, folder, wait) as record:
        return record or _train(run, folder, settings)


def _of_task(task: tuple[Run, Path, Settings, bool]) -> Record:
    run, folder, settings, wait = task
    return execute(run, folder, settings, wait=wait)


@contextlib.contextmanager
def _claimed(run: Run, folder: Path, wait: bool) -> Iterator[Record | None]:
    """The record of a run that has one; else None, and the run is held against other processes inside."""
    lock = filelock.FileLock(work_path(folder, run, ".lock"))

    def claim() -> Record | Literal["held", "ours"]:
        if (record := _recorded(run, folder)) is not None:
            return record
        check_writable(folder)
        with writing(Path(lock.lock_file)):
            try:
                lock.acquire(timeout=_ASK_EVERY if wait else 0)
            except filelock.Timeout:
                return "held"
        return _recorded(run, folder) or "ours"

    try:
        # What the first process finds is what all do.
        while (found := ranks.agree(claim)) == "held":
            if not wait:
                raise Busy(f"{run.id} is being run by another process")
        yield found if isinstance(found, Record) else None
    finally:
        lock.release()


def _recorded(run: Run, folder: Path) -> Record | None:
    record = find_record(folder, run)
    if record is not None:
        # A process that was killed between the record and its last lines left the rest.
        _clean(folder, run)
    return record


def _clean(folder: Path, run: Run) -> None:
    """Remove what a run with a record has left in the work folder, where that may be written at all."""
    for suffix in (".ckpt", ".new", ".jsonl.part"):
        with contextlib.suppress(OSError):
            work_path(folder, run, suffix).unlink()


def check_writable(folder: Path) -> None:
    """Create the results folder; a ``UserError`` says why it cannot be written."""
    work = folder / ".work"
    try:
        work.mkdir(parents=True, exist_ok=True)
        probe = work / ".probe"
        clear(probe).touch()
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"results folder {folder} cannot be written ({error.strerror}): give another one") from None


def _train(run: Run, folder: Path, settings: Settings) -> Record:
    device = settings.torch_device
    if ranks.joined() and device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    data = load_data(run.dataset, settings.data)
    data = data.to(device) if isinstance(data, Dataset) else data
    checkpoint = work_path(folder, run, ".ckpt")
    with _alone(settings.threads):
        seed_everything(run.seed)
        module = _module(run, data, device, settings)
        if ranks.rank() > 0:
            # The start is common; what is drawn from here on, dropout's masks, is each process's own.
            seed_everything(run.seed + 1_000_003 * ranks.rank())
        parameters = sum(p.numel() for p in module.network.parameters())
        fresh = header_of(run, data, device, settings, parameters=parameters)
        before = ranks.agree(lambda: begun(checkpoint, fresh))
        header, epochs = before or (fresh, ())
        writer = RecordWriter(folder, run, [header, *epochs]) if ranks.rank() == 0 else None
        half_a_minute, ten_minutes = 30.0, 600.0
        seconds = half_a_minute if isinstance(data, Dataset) else ten_minutes
        recorder = Recorder(header, epochs, writer, checkpoint, settings, checkpoint_seconds=seconds)
        try:
            end = _fit(module, recorder, settings, None if before is None else checkpoint)
            record = Record(header, tuple(recorder.epochs), end)
            return ranks.agree(lambda: _kept(record, writer))
        finally:
            if writer is not None:
                writer.close()
            module.loader.close()


def _module(run: Run, data: Dataset | ImageFolders, device: torch.device, settings: Settings) -> TrainingModule:
    chosen = method(run.method, run.model, run.method_arguments)
    network = build_model(
        run.model,
        run.model_arguments,
        shape=data.shape,
        classes=data.classes,
        start=chosen.start,
        seed=run.seed,
    )
    network = chosen.convert(network)
    if settings.channels_last:
        _use_channels_last(network)
    if ranks.world() > 1:
        share_batch_norm(network, device)
    # On its device before the optimizer is made, as the optimizer may look at the weights.
    loader = _loader(run, data, device, settings)
    module = TrainingModule(run, network.to(device), chosen, loader, sharded=settings.sharded)
    if settings.sharded and isinstance(module.optimizer, (on.StiefelSGD, ReleasedSGD)):
        raise UserError(f"method {run.method} steps on whole matrices, and fsdp divides them: give strategy ddp")
    return module


def _loader(run: Run, data: Dataset | ImageFolders, device: torch.device, settings: Settings) -> Loader:
    rank, world = ranks.rank(), ranks.world()
    if isinstance(data, Dataset):
        return EpochLoader(run, data, rank=rank, world=world)
    return StreamingLoader(run, data, rank=rank, world=world, workers=settings.workers, device=device)


def _use_channels_last(network: nn.Module) -> None:
    """Lay out convolutions, and the images as they come in, with the channels last."""
    network.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]  (torch's stub lacks it)
    network.register_forward_pre_hook(
        lambda _, inputs: (inputs[0].contiguous(memory_format=torch.channels_last), *inputs[1:])
    )


def _fit(module: TrainingModule, recorder: Recorder, settings: Settings, checkpoint: Path | None) -> End:
    """Train to the end, whichever it is, and describe it."""

    def end(outcome: Outcome, step: int, reason: str | None = None, loss: float | None = None) -> End:
        return End(
            outcome=outcome, reason=reason, loss=finite(loss), step=step, finished=now(), resumed=recorder.resumed
        )

    with quiet():
        trainer = make_trainer(module.run, recorder, settings)
        try:
            path = None if checkpoint is None else str(checkpoint)
            trainer.fit(module, module.loader, ckpt_path=path, weights_only=True)
        except Diverged as diverged:
            return end(DIVERGED, diverged.step, diverged.reason, diverged.loss)
        except torch.linalg.LinAlgError as error:  # pyright: ignore[reportPrivateImportUsage]
            # A decomposition of numbers that are not finite any more: the same outcome.
            return end(DIVERGED, trainer.global_step + 1, str(error).split("\n")[0])
        except Stopped as stopped:
            return end(STOPPED, stopped.step)
        except SystemExit as left:
            # Lightning makes an exit of Ctrl-C, which would pass through a notebook without a word.
            if not isinstance(left.__context__, KeyboardInterrupt):
                raise
            raise KeyboardInterrupt from None
        return end(COMPLETED, trainer.global_step)


def _kept(record: Record, writer: RecordWriter | None) -> Record:
    """The record, in its file from now on unless it is to be continued."""
    if writer is not None and record.outcome != STOPPED:
        writer.finish(record.end)
        _clean(writer.final.parent, record.run)
    return record


@contextlib.contextmanager
def _alone(threads: int) -> Iterator[None]:
    """Hold the process for one run and fix torch's threads; put them back afterwards."""
    with _ONE_RUN:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)
