"""The faces of PIE from the common public file ``PIE_32x32.mat``, split at random as the paper does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from orthonorm_paper.exceptions import UserError

from .dataset import Dataset, data_folder, digest_of
from .order import hold_out

_FILE = "PIE_32x32.mat"
_CURE = (
    "get it from the page of face data at www.cad.zju.edu.cn/home/dengcai/Data/FaceData.html and give its folder as "
    "--data FOLDER"
)


def pie(folder: Path | None) -> Dataset:
    """PIE with the split of seed 0; errors as ``load_pie``."""
    return load_pie(folder)


def pie_tune(folder: Path | None) -> Dataset:
    """PIE's training images, a tenth of them held out to choose a learning rate on; errors as ``load_pie``."""
    return load_pie(folder, tune=True)


def load_pie(
    folder: Path | None,
    *,
    tune: bool = False,
    seed: int = 0,
    images: int = 11_554,
    held_out: int = 1_340,
    people: int = 68,
) -> Dataset:
    """Grey faces divided by 255, each split less its own mean (one number).

    Args:
        folder: where ``PIE_32x32.mat`` is.
        tune: leave the test images out and hold out 10 % of the others instead: what learning rates are chosen on.
        seed: of the split.
        images: number of images there must be.
        held_out: how many of them are the test set.
        people: number of classes there must be.

    Raises:
        UserError: the file is missing or unreadable, or holds something else than these images.
    """
    path = data_folder(folder) / _FILE
    faces, labels = _read(path, images, people)
    train, test = hold_out(images, held_out, "pie", seed)
    name, what = "pie", f"{len(test):,} to test"
    if tune:
        kept, chosen = hold_out(len(train), len(train) // 10, "pie", seed, "tune")
        train, test = train[kept], train[chosen]
        name, what = "pie-tune", f"{len(test):,} of the images to train held out in place of the test"
    return Dataset(
        name,
        f"PIE, faces of {people} people, {len(train):,} to train and {what}",
        people,
        _centred(faces[train]),
        labels[train],
        _centred(faces[test]),
        labels[test],
        digest_of((faces, labels)),
    )


def _centred(faces: Tensor) -> Tensor:
    scaled = faces / 255
    return scaled - scaled.mean(dtype=torch.float64).float()


def _read(path: Path, images: int, people: int) -> tuple[Tensor, Tensor]:
    content = _content(path)
    for key, what in (("fea", "the images"), ("gnd", "the labels")):
        if key not in content:
            names = ", ".join(sorted(name for name in content if not name.startswith("__"))) or "nothing"
            raise UserError(f"{path} has no {key!r} ({what}), only {names}: {_CURE}")
    pixels, numbers = (torch.as_tensor(content[key].astype("float32")) for key in ("fea", "gnd"))
    if pixels.shape != (images, 1024) or numbers.numel() != images:
        raise UserError(
            f"{path} holds pixels in {tuple(pixels.shape)} and {numbers.numel()} labels, expected ({images}, 1024), "
            f"a row an image of 32 x 32, and as many labels: {_CURE}"
        )
    low, high = float(pixels.min()), float(pixels.max())
    # Some copies are normalised already, with values to 1.
    if not (low >= 0 and 1 < high <= 255):
        raise UserError(f"{path} holds pixels from {low:g} to {high:g}, expected grey values from 0 to 255: {_CURE}")
    found = numbers.flatten().unique().tolist()
    if found != list(range(1, people + 1)):
        raise UserError(
            f"{path} holds {len(found)} labels from {min(found):g} to {max(found):g}, expected 1 to {people}: {_CURE}"
        )
    # Each row is an image in MATLAB's order, column after column.
    return pixels.view(-1, 1, 32, 32).mT.contiguous(), numbers.flatten().long() - 1


def _content(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    if not path.is_file():
        raise UserError(f"{path} is missing: {_CURE}")
    try:
        return loadmat(path)
    except Exception as error:  # what a broken file raises depends on where it is broken
        raise UserError(f"{path} is truncated or corrupt, or no MATLAB file ({error}): {_CURE}") from None
