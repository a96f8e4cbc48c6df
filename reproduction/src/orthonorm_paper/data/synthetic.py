"""Synthetic data sets in the shapes of the real ones, for trials where no real data is available.

They show that a network trains and how fast; an error measured on them says nothing of the paper.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from .dataset import Dataset, digest_of
from .order import generator
from .shapes import shape_of


def synthetic(
    folder: Path | None,  # noqa: ARG001 (one signature for the table)
    *,
    like: str,
    shape: tuple[int, int, int],
    classes: int,
    train: int,
    test: int,
) -> Dataset:
    """One coarse random pattern a class, and noise of the same size on every image.

    Args:
        folder: nothing is read.
        like: the real data set whose shape it has; the name becomes ``like-synthetic``.
        shape: ``(channels, height, width)``.
        classes: number of classes, which follow each other among the samples.
        train: number of training images.
        test: number of test images.

    Examples:
        >>> data = synthetic(None, like="cifar10", shape=(3, 32, 32), classes=10, train=40, test=20)
        >>> data.name, data.description
        ('cifar10-synthetic', 'synthetic patterns and noise in the shape of cifar10, 40 to train and 20 to test')
    """
    name = f"{like}-synthetic"
    coarse = torch.randn(classes, shape[0], 8, 8, generator=generator(name, "patterns"))
    train_x, train_y = _part(coarse, shape, train, generator(name, "train"))
    test_x, test_y = _part(coarse, shape, test, generator(name, "test"))
    description = f"synthetic patterns and noise in the shape of {like}, {train:,} to train and {test:,} to test"
    digest = digest_of((train_x, train_y, test_x, test_y))
    return Dataset(name, description, classes, train_x, train_y, test_x, test_y, digest)


def _part(coarse: Tensor, shape: tuple[int, int, int], count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    labels = torch.arange(count) % len(coarse)
    patterns = torch.nn.functional.interpolate(coarse[labels], size=shape[1:])
    # Deviation 1, as normalised images have.
    return (patterns + torch.randn(count, *shape, generator=random)) / 2**0.5, labels


SYNTHETIC: dict[str, Callable[[Path | None], Dataset]] = {
    f"{like}-synthetic": partial(synthetic, like=like, shape=shape, classes=classes, train=train, test=test)
    for like, train, test in (
        ("mnist", 4_096, 1_024),
        ("pie", 2_720, 680),
        ("cifar10", 4_096, 1_024),
        ("cifar100", 4_096, 1_024),
        ("imagenet", 256, 64),  # 190 MB
    )
    for shape, classes in [shape_of(like)]
}
