"""Batches of an epoch from files, read and transformed by processes of a torch ``DataLoader``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from orthonorm_paper.data import ImageFolders
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.run import Run

from .loader import Batch, Loader, share_of_test

_PREFETCH = 4

Key = tuple[int, int, int]


class StreamingLoader(Loader[ImageFolders]):
    """Iterable of the batches of one epoch, read from files.

    Order and random crops are pure functions of (seed, epoch, index): a run that continues in the middle of an epoch
    begins at that batch without reading what came before, and the number of reading processes changes nothing. Those
    live through all epochs, read ahead, and hand over pinned memory where there is a GPU.

    Args:
        run: seed and batch size.
        dataset: of files.
        rank, world: each of ``world`` processes reads its share of every batch.
        workers: processes that read; 0 reads in this one.
        device: where the test batches go.

    Raises:
        UserError: an augmentation, as the data set has its own; a batch larger than the data or not a multiple of
            ``world``; on iteration, an image that cannot be read.
    """

    def __init__(
        self,
        run: Run,
        dataset: ImageFolders,
        *,
        rank: int = 0,
        world: int = 1,
        workers: int = 0,
        device: torch.device | None = None,
    ) -> None:
        if run.augment != "none":
            raise UserError(
                f"the images of {dataset.name} are cropped as they are read, so augment must be none; "
                f"got {run.augment!r}."
            )
        super().__init__(run, dataset, rank, world)
        self.workers: int = workers
        self.device: torch.device = device or torch.device("cpu")
        self._keys = _Keys(run.seed)
        self._train: DataLoader[Any] | None = None

    def _batches(self, first: int, order: list[Tensor]) -> Iterator[Batch]:
        self._keys.epoch = self.epoch
        self._keys.batches = [indices[self.rank :: self.world] for indices in order]
        if self._train is None:
            self._train = self._loader(self.dataset.train, self._keys, persistent=True)
        yield from _one_line(self._train)

    def test_batches(self) -> Iterator[Batch]:
        """The test images in batches of the run's size."""
        blocks = torch.arange(len(self.dataset.test)).split(self.run.batch_size)
        shares = [share_of_test(block, self.rank, self.world) for block in blocks]
        keys = _Keys(self.run.seed, [mine for mine, _ in shares])
        loader = self._loader(self.dataset.test, keys, persistent=False)
        for (images, labels), (_, counted) in zip(_one_line(loader), shares, strict=True):
            yield images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)[:counted]

    def close(self) -> None:
        """End the processes that read."""
        self._train = None

    def _loader(self, images: torch.utils.data.Dataset[Any], keys: _Keys, *, persistent: bool) -> DataLoader[Any]:
        return DataLoader(
            images,
            batch_sampler=keys,
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
            persistent_workers=persistent and self.workers > 0,
            prefetch_factor=_PREFETCH if self.workers else None,
            # A process of a group would start its own by a server, which would import torch again.
            multiprocessing_context="fork" if self.workers and sys.platform == "linux" else None,
            # Where it is left out torch draws from the global generator, once more in a run that continues.
            generator=torch.Generator(),
        )


class _Keys(Sampler[list[Key]]):
    """The keys of the batches of the epoch to come; the same object for all epochs, as the processes live on."""

    def __init__(self, seed: int, batches: list[Tensor] | None = None) -> None:
        self.seed, self.epoch, self.batches = seed, 0, batches or []

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[Key]]:
        for indices in self.batches:
            yield [(self.seed, self.epoch, index) for index in indices.tolist()]


def _one_line(loader: DataLoader[Any]) -> Iterator[Batch]:
    """Batches of a loader; a reading process's ``UserError`` without the traceback that torch puts around it."""
    try:
        yield from ((images, labels) for images, labels in loader)
    except UserError as error:
        name = f"{UserError.__module__}.{UserError.__name__}: "
        raise UserError(str(error).rstrip().rsplit(name, 1)[-1]) from None
