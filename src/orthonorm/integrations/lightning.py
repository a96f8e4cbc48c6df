"""A Lightning callback that watches the orthogonal weights of the module that is trained."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from orthonorm.diagnostics._health import OrthogonalityHook

__all__ = ["OrthogonalityCallback"]


class OrthogonalityCallback(Callback):
    """Logs the metrics of each orthogonal weight to every logger, and warns of a weight that broke or has stopped.

    What it logs and what it warns of are those of `OrthogonalityHook`; growth of |V| counts from the start of training.

    Args:
        every: optimizer steps between two looks.

    Raises:
        ValueError: if `every` is not positive; when training starts, if the module has no orthogonal weight.

    Examples:
        >>> from orthonorm.integrations.lightning import OrthogonalityCallback
        >>> OrthogonalityCallback(every=50).every
        50
    """

    def __init__(self, every: int = 100) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 step; got {every}.")
        self.every = every
        self._last = 0
        self._hook: OrthogonalityHook | None = None
        self._found: dict[str, float] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse a module without orthogonal weights before the first step."""
        self._hook = OrthogonalityHook(pl_module, lambda name, value, _: self._found.update({name: value}))
        self._last = trainer.global_step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look after every so many optimizer steps; an accumulated gradient's batches between count for none."""
        step = trainer.global_step
        if step // self.every == self._last // self.every or not trainer.is_global_zero:
            return
        self._last = step
        assert self._hook is not None  # made when training started
        self._hook.look(step)
        for logger in trainer.loggers:
            logger.log_metrics(self._found, step)
