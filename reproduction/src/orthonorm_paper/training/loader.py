"""Batches of an epoch from tensors that already lie on the device.

``EpochLoader`` here and ``StreamingLoader`` have one interface, that of ``Loader``: ``epoch`` (set from outside),
``len``, iteration over the training batches of an epoch, ``test_batches`` over the test images, and the state that a
checkpoint keeps. Of each batch a process has the samples ``rank::world``; joined, they are what one process has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from orthonorm_paper.data import Dataset, ImageFolders, batch_order, generator
from orthonorm_paper.data.augmentation import AUGMENTATIONS
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.run import Run

Batch = tuple[Tensor, Tensor]
D = TypeVar("D", Dataset, ImageFolders)

_TEST_BATCH = 1000


class Loader(ABC, Generic[D]):
    """What the loaders share: the order of an epoch, and how many of its batches were given.

    The order and what is drawn for a sample are pure functions of (seed, epoch, batch) or (seed, epoch, index), so all
    that a checkpoint in the middle of an epoch needs of the loader is how many batches it has given.
    """

    def __init__(self, run: Run, dataset: D, rank: int, world: int) -> None:
        _check_batch(run, dataset.name, dataset.count, world)
        self.run: Run = run
        self.dataset: D = dataset
        self.rank: int = rank
        self.world: int = world
        self.epoch = 0
        self.given: int = 0
        self._first = 0

    def __len__(self) -> int:
        return self.dataset.count // self.run.batch_size

    def __iter__(self) -> Iterator[Batch]:
        # The body runs at the first `next`: epoch and state may be set until then.
        first, self._first = self._first, 0
        order = batch_order(self.run.seed, self.epoch, self.dataset.count, self.run.batch_size)
        for number, batch in enumerate(self._batches(first, list(order)[first:]), first):
            self.given = number + 1
            yield batch

    @abstractmethod
    def _batches(self, first: int, order: list[Tensor]) -> Iterator[Batch]:
        """This process's share of the batches with the given indices, of which the first has that number."""

    @abstractmethod
    def test_batches(self) -> Iterator[Batch]:
        """The test images on the device, in batches of which this is the process's share (see ``share_of_test``)."""

    def state_dict(self) -> dict[str, Any]:
        """Batches given of an epoch in progress; 0 between epochs."""
        return {"batches": self.given % len(self)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Begin the next epoch after the batches that were given."""
        self._first = state["batches"]

    @abstractmethod
    def close(self) -> None:
        """End what reads."""


class EpochLoader(Loader[Dataset]):
    """Iterable of the batches of one epoch, augmented by one generator a batch.

    Args:
        run: seed, batch size and augmentation.
        dataset: on the device.
        rank, world: each of ``world`` processes gets its share of every batch; what is drawn for a sample does not
            depend on them.

    Raises:
        UserError: an unknown augmentation, a batch larger than the data or not a multiple of
            ``world``.
    """

    def __init__(self, run: Run, dataset: Dataset, *, rank: int = 0, world: int = 1) -> None:
        if run.augment not in AUGMENTATIONS:
            raise UserError(f"augment must be one of {', '.join(AUGMENTATIONS)}; got {run.augment!r}.")
        super().__init__(run, dataset, rank, world)

    def _batches(self, first: int, order: list[Tensor]) -> Iterator[Batch]:
        augment, mine = AUGMENTATIONS[self.run.augment], slice(self.rank, None, self.world)
        for number, indices in enumerate(order, first):
            # Augmented as a whole, since one generator serves the batch, and divided afterwards.
            taken = (indices if augment is not None else indices[mine]).to(self.dataset.train_y.device)
            # Three times as fast as indexing with a tensor.
            images = self.dataset.train_x.index_select(0, taken)
            labels = self.dataset.train_y.index_select(0, taken)
            if augment is not None:
                images = augment(images, generator(self.run.seed, "augment", self.epoch, number, 0))[mine]
                labels = labels[mine]
            yield images, labels

    def test_batches(self) -> Iterator[Batch]:
        """The test images in blocks."""
        for images, labels in zip(
            self.dataset.test_x.split(_TEST_BATCH), self.dataset.test_y.split(_TEST_BATCH), strict=True
        ):
            if self.world == 1:
                yield images, labels
                continue
            mine, counted = share_of_test(torch.arange(len(labels)), self.rank, self.world)
            yield images[mine.to(images.device)], labels[mine.to(images.device)][:counted]

    def close(self) -> None:
        """Nothing is held open."""


def _check_batch(run: Run, name: str, count: int, world: int) -> None:
    """A ``UserError`` if the batch is larger than the training set, or cannot be divided among the processes."""
    if run.batch_size > count:
        raise UserError(f"batch_size must be at most the {count} training samples of {name}; got {run.batch_size}.")
    if run.batch_size % world:
        raise UserError(f"batch_size {run.batch_size} is no multiple of the {world} processes")


def share_of_test(indices: Tensor, rank: int, world: int) -> tuple[Tensor, int]:
    """Indices ``rank::world`` and their number; where there are none, one index that is not to be counted.

    Sharded weights are gathered in each forward: every process must come to each of them.

    Examples:
        >>> [share_of_test(torch.arange(3), rank, 4) for rank in (0, 3)]
        [(tensor([0]), 1), (tensor([0]), 0)]
    """
    mine = indices[rank::world]
    return (mine, len(mine)) if len(mine) else (indices[:1], 0)
