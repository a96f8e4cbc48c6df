"""The callback that writes the record and the checkpoints of a run."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn

from orthonorm_paper.records.files import Epoch, Header, RecordWriter
from orthonorm_paper.records.lines import finite
from orthonorm_paper.records.writing import writing

from .lightning_module import TrainingModule
from .loader import Loader
from .processes.ranks import agree, rank, total
from .processes.sharding import gathered
from .settings import Settings
from .test_error import Errors

# Where epochs are shorter, a checkpoint after each would cost more than it saves.
_BETWEEN_EPOCHS = 1.0


class Stopped(Exception):
    """Ends a run that was asked to stop; it can be continued from its checkpoint."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.step = step


class Recorder(pl.Callback):
    """Writes a line an epoch, and a checkpoint after it and whenever ``checkpoint_seconds`` have passed.

    A checkpoint holds the lines written so far: what a continued run starts from is one file. Of several processes the
    first one writes, and its clock decides for all.

    Args:
        header: of the run's record.
        epochs: those that were finished before.
        writer: of the run's record; None in the processes that write nothing.
        checkpoint: path of the checkpoint.
        settings: when to save and when to stop.
        checkpoint_seconds: what None in the settings stands for.
    """

    def __init__(
        self,
        header: Header,
        epochs: Iterable[Epoch],
        writer: RecordWriter | None,
        checkpoint: Path,
        settings: Settings,
        *,
        checkpoint_seconds: float = 30.0,
    ) -> None:
        given = settings.checkpoint_seconds
        self.header: Header = header
        self.epochs: list[Epoch] = list(epochs)
        self.writer: RecordWriter | None = writer
        self.checkpoint: Path = checkpoint
        self.checkpoint_seconds: float = checkpoint_seconds if given is None else given
        self.stop_at_step: int | None = settings.stop_at_step
        self.deadline: float | None = settings.deadline
        self.resumed: int = 0
        self._spent = 0.0
        self._began = self._saved = time.perf_counter()

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Start the clock."""
        self._began = self._saved = time.perf_counter()

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
    ) -> None:
        """Save or stop in the middle of an epoch; at its end, that waits for the epoch's line."""
        if not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            self._save_or_stop(trainer, pl_module, self.checkpoint_seconds)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate, write the epoch's line, then save or stop."""
        assert isinstance(pl_module, TrainingModule)
        self._spent += time.perf_counter() - self._began
        train_loss, train_error = pl_module.epoch_summary()
        tested = evaluate(trainer, pl_module.network, pl_module.loader)
        with gathered(pl_module.network):
            orthogonality_error = pl_module.method.error(pl_module.network)
        epoch = Epoch(
            epoch=trainer.current_epoch + 1,
            step=trainer.global_step,
            lr=pl_module.optimizer.param_groups[0]["lr"],
            train_loss=finite(train_loss),
            train_error=train_error,
            **tested,  # pyright: ignore[reportArgumentType]  (names of errors)
            orthogonality_error=finite(orthogonality_error),
            seconds=self._spent,
        )
        self.epochs.append(epoch)
        if self.writer is not None:
            self.writer.write(epoch)
        self._spent, self._began = 0.0, time.perf_counter()
        if trainer.current_epoch + 1 < pl_module.run.epochs:
            self._save_or_stop(trainer, pl_module, min(self.checkpoint_seconds, _BETWEEN_EPOCHS))

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the lines of the record."""
        checkpoint["record"] = {
            "lines": [line.text() for line in (self.header, *self.epochs)],
            "spent": self._spent + time.perf_counter() - self._began,
            "resumed": self.resumed,
        }

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Take up the clock of the epoch in progress."""
        self._spent = checkpoint["record"]["spent"]
        self.resumed = checkpoint["record"]["resumed"] + 1

    def _save_or_stop(self, trainer: pl.Trainer, pl_module: pl.LightningModule, seconds: float) -> None:
        assert isinstance(pl_module, TrainingModule)
        step = trainer.global_step
        done = step - trainer.current_epoch * len(pl_module.losses)
        stop = self.stop_at_step is not None and step >= self.stop_at_step
        due = False
        # To agree, processes wait for each other: they do where they look at the losses anyway.
        if trainer.world_size == 1 or pl_module.looks_after(done):
            late, due = agree(lambda: self._clock(seconds))
            stop = stop or late
        if not (stop or due):
            return
        pl_module.check_losses(done)
        self.save(trainer)
        if stop:
            raise Stopped(step)

    def _clock(self, seconds: float) -> tuple[bool, bool]:
        """Whether the deadline is past, and whether a checkpoint is due."""
        late = self.deadline is not None and time.time() > self.deadline
        return late, time.perf_counter() - self._saved >= seconds

    def save(self, trainer: pl.Trainer) -> None:
        """Write the checkpoint so that a kill leaves the old one or the new one."""
        fresh = self.checkpoint.with_suffix(".new")
        with writing(self.checkpoint):
            trainer.save_checkpoint(fresh)
            if rank() == 0:
                os.replace(fresh, self.checkpoint)
        self._saved = time.perf_counter()


def evaluate(trainer: pl.Trainer, network: nn.Module, loader: Loader) -> dict[str, float | None]:
    """Mean loss and errors in % on the test set, in evaluation mode, at the run's precision; fields of a record."""
    tops = loader.dataset.tops
    errors = Errors(loader.dataset.classes, tops).to(trainer.strategy.root_device)
    loss, seen, training = 0.0, 0, network.training
    network.eval()
    with torch.no_grad(), trainer.precision_plugin.forward_context():
        for images, labels in loader.test_batches():
            logits = network(trainer.precision_plugin.convert_input(images))[: len(labels)]
            loss += float(nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum"))
            seen += labels.numel()
            errors.update(logits.flatten(0, -2), labels.flatten())
    network.train(training)
    loss, seen = total(torch.tensor([loss, seen], dtype=torch.float64, device=trainer.strategy.root_device)).tolist()
    names = [f"test_top{k}_error" if k > 1 else "test_error" for k in tops]
    return {"test_loss": finite(loss / seen), **dict(zip(names, errors.percent(), strict=True))}
