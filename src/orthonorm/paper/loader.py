"""Batches of an epoch from tensors that already lie on the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from orthonorm.paper.augment import AUGMENTATIONS
from orthonorm.paper.config import Run
from orthonorm.paper.data import Dataset, batch_order, generator
from orthonorm.paper.errors import UserError

Batch = tuple[Tensor, Tensor]


class EpochLoader:
    """Iterable of the batches of one epoch; ``epoch`` is set from outside.

    The order and the augmentation are pure functions of (seed, epoch, batch), so all that a
    checkpoint in the middle of an epoch needs of the loader is how many batches it has given.

    Args:
        run: seed, batch size and augmentation.
        dataset: on the device.
        rank, world: each of ``world`` processes gets its share of every batch.

    Raises:
        UserError: an unknown augmentation, a batch larger than the data or not a multiple of
            ``world``.
    """

    def __init__(self, run: Run, dataset: Dataset, *, rank: int = 0, world: int = 1) -> None:
        if run.augment not in AUGMENTATIONS:
            raise UserError(f"augment is one of {', '.join(AUGMENTATIONS)}, got {run.augment!r}")
        if run.batch_size > len(dataset.train_y):
            raise UserError(
                f"batch_size is at most the {len(dataset.train_y)} training samples of "
                f"{dataset.name}, got {run.batch_size}"
            )
        if run.batch_size % world:
            raise UserError(f"batch_size {run.batch_size} is no multiple of the {world} processes")
        self.run, self.dataset, self.rank, self.world = run, dataset, rank, world
        self.epoch = 0
        self.given = 0
        self._first = 0

    def __len__(self) -> int:
        return len(self.dataset.train_y) // self.run.batch_size

    def __iter__(self) -> Iterator[Batch]:
        # The body runs at the first `next`: epoch and state may be set until then.
        first, self._first = self._first, 0
        order = batch_order(self.run.seed, self.epoch, len(self.dataset.train_y), self.run.batch_size)
        for number, indices in enumerate(order):
            if number >= first:
                self.given = number + 1
                yield self._batch(number, indices)

    def state_dict(self) -> dict[str, Any]:
        """Batches given of an epoch in progress; 0 between epochs."""
        return {"batches": self.given % len(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next epoch after the batches that were given."""
        self._first = state["batches"]

    def _batch(self, number: int, indices: Tensor) -> Batch:
        share = indices[self.rank :: self.world].to(self.dataset.train_y.device)
        # Three times as fast as indexing with a tensor.
        images = self.dataset.train_x.index_select(0, share)
        labels = self.dataset.train_y.index_select(0, share)
        augment = AUGMENTATIONS[self.run.augment]
        if augment is not None:
            key = (self.run.seed, "augment", self.epoch, number, self.rank)
            images = augment(images, generator(*key))
        return images, labels
