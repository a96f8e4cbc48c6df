"""`execute`: one run from its description to its record, on Lightning's Trainer."""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock
import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import RichProgressBar

from orthonorm.paper.config import Run
from orthonorm.paper.data import Dataset, load_dataset
from orthonorm.paper.errors import UserError
from orthonorm.paper.header import header, now
from orthonorm.paper.loader import EpochLoader
from orthonorm.paper.methods import method
from orthonorm.paper.models import build_model
from orthonorm.paper.module import Diverged, TrainingModule
from orthonorm.paper.randomness import seed_everything
from orthonorm.paper.recorder import Recorder, Stopped
from orthonorm.paper.records import (
    COMPLETED,
    DIVERGED,
    STOPPED,
    Line,
    Record,
    RecordWriter,
    read_record,
    record_path,
    without_clock,
    work_path,
)

# Generators and thread counts belong to the process: runs in threads of one process (a Dask worker
# has several by default) take turns, or they would draw each other's random numbers.
_ONE_RUN = threading.Lock()


@dataclass(frozen=True)
class Settings:
    """How a run is executed; nothing here decides its result beyond rounding.

    Args:
        device: "cpu", "cuda", or "auto" for cuda where there is one.
        threads: of torch, fixed for the whole run: sums are split by it.
        data: folder of the data sets' files.
        checkpoint_seconds: least time between two checkpoints.
        stop_at_step, deadline: save and stop after that step, or past that ``time.time()``.
        progress: show Lightning's progress bar.

    Raises:
        UserError: an unknown or absent device, fewer than one thread.
    """

    device: str = "auto"
    threads: int = 1
    data: Path | None = None
    checkpoint_seconds: float = 30.0
    stop_at_step: int | None = None
    deadline: float | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if self.device not in ("auto", "cpu", "cuda"):
            raise UserError(f"device is auto, cpu or cuda, got {self.device!r}")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise UserError("device cuda: torch finds no CUDA device here; use cpu or auto")
        if self.threads < 1:
            raise UserError(f"threads is at least 1, got {self.threads}")

    @property
    def torch_device(self) -> torch.device:
        """The device that "auto" stands for here."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)


class Busy(UserError):
    """Another process is at this run."""


def execute(run: Run, folder: Path, settings: Settings | None = None, *, wait: bool = True) -> Record:
    """The record of a run: read if it is there, else trained, continuing from a checkpoint.

    A run that diverges ends with that outcome. One that is stopped by its settings ends as
    "stopped"; its record is returned but not kept, and the next call continues it.

    Args:
        run: what to train.
        folder: results folder; work in progress lies in its ``.work``.
        settings: how to train it.
        wait: wait for another process that is at this run, instead of raising ``Busy``.

    Raises:
        UserError: a name that no table has, data that is missing, a folder not to be written.
        Busy: ``wait`` is False and another process holds the run.
    """
    settings = settings or Settings()
    final = record_path(folder, run)
    if final.exists():
        return read_record(final)
    check_writable(folder)
    lock = filelock.FileLock(work_path(folder, run, ".lock"))
    try:
        with lock.acquire(timeout=-1 if wait else 0):
            return read_record(final) if final.exists() else _train(run, folder, settings)
    except filelock.Timeout:
        raise Busy(f"{run.id} is being run by another process") from None


def check_writable(folder: Path) -> None:
    """Create the results folder; a ``UserError`` says why it cannot be written."""
    work = folder / ".work"
    try:
        work.mkdir(parents=True, exist_ok=True)
        probe = work / ".probe"
        probe.touch()
        probe.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"results folder {folder} cannot be written ({error.strerror}): give another one") from None


def _train(run: Run, folder: Path, settings: Settings) -> Record:
    device = settings.torch_device
    dataset = load_dataset(run.dataset, settings.data).to(device)
    checkpoint = work_path(folder, run, ".ckpt")
    with _alone(settings.threads):
        seed_everything(run.seed)
        module = _module(run, dataset, device)
        parameters = sum(p.numel() for p in module.network.parameters())
        first = header(run, dataset, device, threads=settings.threads, parameters=parameters)
        lines = _lines_of(checkpoint, first)
        writer = RecordWriter(folder, run, lines or [first])
        recorder = Recorder(
            writer,
            dataset,
            checkpoint,
            checkpoint_seconds=settings.checkpoint_seconds,
            stop_at_step=settings.stop_at_step,
            deadline=settings.deadline,
        )
        try:
            end = _fit(module, recorder, settings, checkpoint if lines else None)
            return _finish(writer, checkpoint, end)
        finally:
            writer.close()


def _module(run: Run, dataset: Dataset, device: torch.device) -> TrainingModule:
    chosen = method(run.method, run.model, run.method_arguments)
    loader = EpochLoader(run, dataset)
    network = build_model(
        run.model,
        run.model_arguments,
        shape=dataset.shape,
        classes=dataset.classes,
        start=chosen.start,
        seed=run.seed,
    )
    # On its device before the optimizer is made, as the optimizer may look at the weights.
    return TrainingModule(run, chosen.convert(network).to(device), chosen, loader)


def _fit(module: TrainingModule, recorder: Recorder, settings: Settings, checkpoint: Path | None) -> Line:
    """Train to the end, whichever it is, and describe it."""
    end: dict[str, Any] = {"kind": "end", "outcome": COMPLETED, "reason": None, "loss": None}
    with _quiet():
        trainer = _trainer(module.run, recorder, settings)
        _fit_into(end, trainer, module, checkpoint)
    return end | {"finished": now(), "resumed": recorder.resumed}


def _fit_into(end: dict[str, Any], trainer: pl.Trainer, module: TrainingModule, checkpoint: Path | None) -> None:
    path = None if checkpoint is None else str(checkpoint)
    try:
        trainer.fit(module, module.loader, ckpt_path=path, weights_only=True)
        end["step"] = trainer.global_step
    except Diverged as diverged:
        end |= {"outcome": DIVERGED, "reason": diverged.reason, "loss": diverged.loss}
        end["step"] = diverged.step
    except torch.linalg.LinAlgError as error:  # pyright: ignore[reportPrivateImportUsage]
        # A decomposition of numbers that are not finite any more: the same outcome.
        end |= {"outcome": DIVERGED, "reason": str(error).split("\n")[0]}
        end["step"] = trainer.global_step + 1
    except Stopped as stopped:
        end |= {"outcome": STOPPED, "step": stopped.step}


def _finish(writer: RecordWriter, checkpoint: Path, end: Line) -> Record:
    if end["outcome"] == STOPPED:
        writer.write(end)
        first, *epochs, last = writer.lines
        return Record(first, tuple(epochs), last)
    record = read_record(writer.finish(end))
    checkpoint.unlink(missing_ok=True)
    return record


def _trainer(run: Run, recorder: Recorder, settings: Settings) -> pl.Trainer:
    bar = []
    if settings.progress:
        bar = [RichProgressBar(refresh_rate=20)]
    return pl.Trainer(
        accelerator=settings.torch_device.type,
        devices=1,
        precision=run.precision,  # type: ignore[arg-type]  (checked by Run against its own list)
        max_epochs=run.epochs,
        callbacks=[recorder, *bar],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=settings.progress,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )


def _lines_of(checkpoint: Path, first: Line) -> list[Line]:
    """Lines that a checkpoint holds, if it is whole and was written by a run like this one."""
    if not checkpoint.exists():
        return []
    try:
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        lines = [json.loads(line) for line in state["record"]["lines"]]
    except Exception as error:  # whatever is wrong with it, the run starts anew
        logging.getLogger(__name__).warning("%s is not usable (%s): start anew", checkpoint, error)
        return []
    if without_clock(lines[0]) == without_clock(json.loads(json.dumps(first))):
        return lines
    logging.getLogger(__name__).warning("%s is of another version or machine: start anew", checkpoint)
    return []


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


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep Lightning's notes (devices, tips, deprecations in its own code) out of a sweep's output."""
    loggers = [logging.getLogger(f"lightning.{name}") for name in ("pytorch", "fabric")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"lightning\.")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
