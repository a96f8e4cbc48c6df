"""Data sets as a table: each a function of a folder that gives tensors ready for training."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from orthonorm.paper.data.cifar import cifar10, cifar10_tune, cifar100, cifar100_tune
from orthonorm.paper.data.copying import COPYING
from orthonorm.paper.data.dataset import Dataset
from orthonorm.paper.data.mnist import mnist, mnist_5k, mnist_5k_rgb
from orthonorm.paper.data.pie import pie, pie_tune
from orthonorm.paper.data.synthetic import SYNTHETIC
from orthonorm.paper.errors import UserError

DATASETS: dict[str, Callable[[Path | None], Dataset]] = {
    "mnist-5k": mnist_5k,
    "mnist-5k-rgb": mnist_5k_rgb,
    "mnist": mnist,
    "pie": pie,
    "pie-tune": pie_tune,
    "cifar10": cifar10,
    "cifar10-tune": cifar10_tune,
    "cifar100": cifar100,
    "cifar100-tune": cifar100_tune,
    **SYNTHETIC,
    **COPYING,
}


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
