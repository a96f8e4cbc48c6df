"""Data sets as tables: each a function of a folder that gives tensors ready for training, or readers of files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from orthonorm_paper.exceptions import UserError

from .cifar import cifar10, cifar10_tune, cifar100, cifar100_own, cifar100_tune
from .copying import COPYING
from .dataset import Dataset
from .imagenet import ImageFolders, load_image_folder, load_imagenet, load_imagenet_colour
from .mnist import mnist, mnist_5k, mnist_5k_rgb
from .pie import pie, pie_tune
from .synthetic import SYNTHETIC

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
    "cifar100-own": cifar100_own,
    **SYNTHETIC,
    **COPYING,
}

# Too large for memory: read from files in every epoch.
IMAGE_SETS: dict[str, Callable[[Path | None], ImageFolders]] = {
    "imagenet": load_imagenet,
    "imagenet-colour": load_imagenet_colour,
    "image-folder": load_image_folder,
}


def check_dataset(name: str) -> None:
    """A ``UserError`` that lists the known names, for a name that no table has."""
    if name not in DATASETS and name not in IMAGE_SETS:
        raise UserError(f"dataset must be one of {', '.join((*DATASETS, *IMAGE_SETS))}; got {name!r}.")


def load_dataset(name: str, folder: Path | None = None) -> Dataset:
    """Data set by name, on the CPU; kept for the next run of this process.

    Args:
        name: entry of ``DATASETS``.
        folder: where its files are, or are to be downloaded to; None means ``data``.

    Raises:
        UserError: an unknown name, or a file that is missing or broken.
    """
    if name not in DATASETS:
        raise UserError(f"dataset must be one of {', '.join(DATASETS)}; got {name!r}.")
    return _load(name, folder)


def load_data(name: str, folder: Path | None = None) -> Dataset | ImageFolders:
    """Data set of either table by name; arguments and errors as those of ``load_dataset``."""
    check_dataset(name)
    return _load_images(name, folder) if name in IMAGE_SETS else load_dataset(name, folder)


@functools.lru_cache(maxsize=1)
def _load(name: str, folder: Path | None) -> Dataset:
    return DATASETS[name](folder)


@functools.lru_cache(maxsize=1)
def _load_images(name: str, folder: Path | None) -> ImageFolders:
    return IMAGE_SETS[name](folder)
