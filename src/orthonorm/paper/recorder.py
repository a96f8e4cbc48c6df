"""The callback that writes the record and the checkpoints of a run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import nn

from orthonorm.paper.data import Dataset
from orthonorm.paper.module import TrainingModule
from orthonorm.paper.records import RecordWriter, dumps

_TEST_BATCH = 1000


class Stopped(Exception):
    """Ends a run that was asked to stop; it can be continued from its checkpoint."""

    def __init__(self, step: int) -> None:
        super().__init__(f"stopped at step {step}")
        self.step = step


class Recorder(pl.Callback):
    """Writes a line an epoch, and a checkpoint whenever ``checkpoint_seconds`` have passed.

    A checkpoint holds the lines written so far: what a continued run starts from is one file.

    Args:
        writer: of the run's record.
        dataset: its test set is evaluated after each epoch.
        checkpoint: path of the checkpoint.
        checkpoint_seconds: least time between two checkpoints; 0 saves after every step.
        stop_at_step, deadline: after that step, or past that ``time.time()``, save and stop.
    """

    def __init__(
        self,
        writer: RecordWriter,
        dataset: Dataset,
        checkpoint: Path,
        *,
        checkpoint_seconds: float,
        stop_at_step: int | None = None,
        deadline: float | None = None,
    ) -> None:
        self.writer, self.dataset, self.checkpoint = writer, dataset, checkpoint
        self.checkpoint_seconds = checkpoint_seconds
        self.stop_at_step, self.deadline = stop_at_step, deadline
        self.resumed = 0
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
            self._save_or_stop(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Evaluate, write the epoch's line, then save or stop."""
        assert isinstance(pl_module, TrainingModule)
        self._spent += time.perf_counter() - self._began
        train_loss, train_error = pl_module.epoch_summary()
        test_loss, test_error = evaluate(trainer, pl_module.network, self.dataset)
        self.writer.write(
            {
                "kind": "epoch",
                "epoch": trainer.current_epoch + 1,
                "step": trainer.global_step,
                "lr": pl_module.optimizer.param_groups[0]["lr"],
                "train_loss": train_loss,
                "train_error": train_error,
                "test_loss": test_loss,
                "test_error": test_error,
                "orthogonality_error": pl_module.method.error(pl_module.network),
                "seconds": self._spent,
            }
        )
        self._spent, self._began = 0.0, time.perf_counter()
        if trainer.current_epoch + 1 < pl_module.run.epochs:
            self._save_or_stop(trainer, pl_module)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Add the lines of the record."""
        checkpoint["record"] = {
            "lines": [dumps(line) for line in self.writer.lines],
            "spent": self._spent + time.perf_counter() - self._began,
            "resumed": self.resumed,
        }

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Take up the clock of the epoch in progress."""
        self._spent = checkpoint["record"]["spent"]
        self.resumed = checkpoint["record"]["resumed"] + 1

    def _save_or_stop(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        step = trainer.global_step
        stop = self.stop_at_step is not None and step >= self.stop_at_step
        stop = stop or (self.deadline is not None and time.time() > self.deadline)
        due = time.perf_counter() - self._saved >= self.checkpoint_seconds
        if not (stop or due):
            return
        assert isinstance(pl_module, TrainingModule)
        pl_module.check_losses(step - trainer.current_epoch * len(pl_module.losses))
        self.save(trainer)
        if stop:
            raise Stopped(step)

    def save(self, trainer: pl.Trainer) -> None:
        """Write the checkpoint so that a kill leaves the old one or the new one."""
        fresh = self.checkpoint.with_suffix(".new")
        trainer.save_checkpoint(fresh)
        os.replace(fresh, self.checkpoint)
        self._saved = time.perf_counter()


def evaluate(trainer: pl.Trainer, network: nn.Module, dataset: Dataset) -> tuple[float, float]:
    """Mean loss and error in % on the test set, in evaluation mode, at the run's precision."""
    loss, wrong, training = 0.0, 0, network.training
    network.eval()
    with torch.no_grad(), trainer.precision_plugin.forward_context():
        for images, labels in zip(dataset.test_x.split(_TEST_BATCH), dataset.test_y.split(_TEST_BATCH), strict=True):
            logits = network(images)
            loss += float(nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum"))
            wrong += int((logits.argmax(-1) != labels).sum())
    network.train(training)
    return loss / dataset.test_y.numel(), 100 * wrong / dataset.test_y.numel()
