"""The training step, for Lightning's Trainer: loss, counting, divergence, learning rate."""

from __future__ import annotations

import math
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from orthonorm_paper.methods.table import Method, OptimizerSettings
from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import rate

from .loader import Batch, Loader
from .processes.ranks import everyones, rank, total, world
from .processes.sharding import shard_
from .random_state import random_state, restore_random_state
from .test_error import Errors

# On a GPU every look at a loss waits for the device, so losses are looked at in blocks; which step
# is reported does not depend on that.
_CHECK_EVERY = {"cpu": 1}
_CHECK_EVERY_ELSEWHERE = 50


class Diverged(Exception):
    """Ends the training of a run that cannot go on; ``execute._fit`` makes it the outcome of the run."""

    def __init__(self, step: int, loss: float | None, reason: str) -> None:
        super().__init__(reason)
        self.step: int = step
        self.loss: float | None = loss
        self.reason: str = reason


class TrainingModule(pl.LightningModule):
    """Cross-entropy training of a converted network, its optimizer made by the method."""

    def __init__(
        self,
        run: Run,
        network: nn.Module,
        method: Method,
        loader: Loader,
        *,
        sharded: bool = False,
    ) -> None:
        super().__init__()
        self.run: Run = run
        self.network: nn.Module = network
        self.method: Method = method
        self.loader: Loader = loader
        self.sharded = sharded
        self.optimizer: torch.optim.Optimizer = self._make_optimizer()
        # Of the epoch in progress: kept out of the state_dict, put into the checkpoint by hand.
        self.losses: Tensor = torch.zeros(len(loader))
        self.errors: Errors = Errors(loader.dataset.classes)
        self._checked = 0
        self._random: list[dict[str, Any]] | None = None

    def _make_optimizer(self) -> torch.optim.Optimizer:
        run = self.run
        settings = OptimizerSettings(run.optimizer, run.lr, run.momentum, run.nesterov, run.weight_decay)
        return self.method.make_optimizer(self.network, settings)

    def configure_model(self) -> None:
        """Divide the weights among the devices; the optimizer is made again, of the parts."""
        if self.sharded:
            assert self.device_mesh is not None
            shard_(self.network, self.device_mesh["data_parallel"])
            self.optimizer = self._make_optimizer()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer that the method made."""
        return self.optimizer

    def on_train_start(self) -> None:
        """Move the counters to the device; after everything else, put back the random states."""
        self.losses = self.losses.to(self.device)
        self.errors = self.errors.to(self.device)
        self.loader.epoch = self.current_epoch
        if self._random is not None:
            restore_random_state(self._random[rank()])
            self._random = None

    def on_train_epoch_start(self) -> None:
        """Set epoch and learning rate; both are functions of the epoch's number alone."""
        epoch = self.current_epoch
        self.loader.epoch = epoch
        self.losses.zero_()
        self.errors.reset()
        self._checked = 0
        new = rate(self.run.schedule, self.run.lr, epoch)
        changed = epoch > 0 and new != rate(self.run.schedule, self.run.lr, epoch - 1)
        for group in self.optimizer.param_groups:
            group["lr"] = new
        if changed and self.run.restart_momentum:
            self.optimizer.state.clear()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Mean cross-entropy of a batch."""
        images, labels = batch
        logits = self.network(images)
        # A sequence has logits (batch, time, classes) and labels (batch, time): each step is a sample.
        loss = nn.functional.cross_entropy(logits.flatten(0, -2), labels.flatten())
        with torch.no_grad():
            self.losses[batch_idx] = loss
            self.errors.update(logits.flatten(0, -2), labels.flatten())
        if self.looks_after(batch_idx + 1):
            self.check_losses(batch_idx + 1)
        return loss

    def looks_after(self, done: int) -> bool:
        """Whether the losses are looked at after so many batches of the epoch."""
        every = _CHECK_EVERY.get(self.device.type, _CHECK_EVERY_ELSEWHERE)
        return done % every == 0 or done == len(self.losses)

    def check_losses(self, done: int) -> None:
        """Raise ``Diverged`` for the first loss of this epoch that is non-finite or past the limit.

        Each process has the mean over its share of a batch; from here on it has the mean over the batch.
        """
        if done == self._checked:
            return
        self.losses[self._checked : done] = total(self.losses[self._checked : done]) / world()
        fresh = self.losses[self._checked : done].tolist()
        for number, loss in enumerate(fresh, self._checked):
            if not loss <= self.run.loss_limit:
                step = self.current_epoch * len(self.losses) + number + 1
                limit = f"loss {loss:g} passed {self.run.loss_limit:g}"
                reason = limit if math.isfinite(loss) else f"loss is {loss}"
                raise Diverged(step, loss, reason)
        self._checked = done

    def epoch_summary(self) -> tuple[float, float]:
        """Mean loss over the epoch's batches, and error in % of its samples, as they were trained."""
        (error,) = self.errors.percent()
        return float(self.losses.double().mean()), error

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the generators' states of every process and the epoch in progress: Lightning saves neither."""
        checkpoint["orthonorm"] = {
            "random": everyones(random_state()),
            "checked": self._checked,
            "losses": self.losses.cpu().clone(),
            "errors": self.errors.state(),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take up what ``on_save_checkpoint`` added."""
        state = checkpoint["orthonorm"]
        self.losses = state["losses"]
        self._checked = state["checked"]
        if rank() == 0:
            self.errors.load(state["errors"])
        # Those of another number of processes are nobody's here: the ones of this start serve.
        self._random = state["random"] if len(state["random"]) == world() else None
