"""Lightning's Trainer as the runs use it: silent, on one device or many, with nothing written by itself."""

from __future__ import annotations

import contextlib
import datetime
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric.utilities.types import _PATH
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, Strategy

from orthonorm_paper.records.run import Run

from .checkpoint_file import CheckpointFile
from .processes.ranks import launcher
from .settings import Settings


def make_trainer(run: Run, callback: pl.Callback, settings: Settings) -> pl.Trainer:
    """Trainer of a run; in a group of processes, each of them makes one."""
    environment = launcher() if settings.processes > 1 else None
    return pl.Trainer(
        accelerator=settings.torch_device.type,
        devices=settings.devices,
        num_nodes=settings.nodes,
        strategy=_strategy(settings),
        plugins=[CheckpointFile(), *([] if environment is None else [environment])],
        precision=run.precision,  # type: ignore[arg-type]  (checked by Run against its own list)
        max_epochs=run.epochs,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )


def _strategy(settings: Settings) -> Strategy | str:
    if settings.processes == 1:
        return "auto"
    timeout = datetime.timedelta(seconds=settings.timeout)
    if settings.sharded:
        # One file for any number of devices, and no tensor parallelism.
        return Sharded(settings.processes, 1, save_distributed_checkpoint=False, timeout=timeout)
    # Running statistics are the same in all processes: `share_batch_norm`.
    return DDPStrategy(broadcast_buffers=False, timeout=timeout)


class Sharded(ModelParallelStrategy):
    """Lightning's strategy, which also continues a run whose optimizer keeps no state (plain SGD).

    There Lightning's own looks for the first entry of an empty dictionary.
    """

    def load_checkpoint(self, checkpoint_path: _PATH, weights_only: bool | None = None) -> dict[str, Any]:
        """Load weights and optimizers; returns the rest."""
        saved = torch.load(checkpoint_path, map_location="cpu", mmap=True, weights_only=True)["optimizer_states"]
        if any(state["state"] for state in saved):
            return super().load_checkpoint(checkpoint_path, weights_only)
        optimizers, self.optimizers = self.optimizers, []
        try:
            rest = super().load_checkpoint(checkpoint_path, weights_only)
        finally:
            self.optimizers = optimizers
        for optimizer, state in zip(optimizers, saved, strict=True):
            for group, kept in zip(optimizer.param_groups, state["param_groups"], strict=True):
                group["lr"] = kept["lr"]
        return rest


@contextlib.contextmanager
def quiet() -> Iterator[None]:
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
