"""CIFAR-10 and CIFAR-100, read by torchvision and checked before and after."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from orthonorm_paper.exceptions import UserError

from .dataset import Dataset, data_folder, digest_of
from .order import hold_out

if TYPE_CHECKING:
    from torchvision.datasets import CIFAR10

# Mean and standard deviation of a channel over CIFAR-10's training images, on the scale 0 to 255. The released code has
# them for both data sets.
_STATISTICS = ((125.3, 123.0, 113.9), (63.0, 62.1, 66.7))
Statistics = tuple[tuple[float, ...], tuple[float, ...]]
# The paper chooses learning rates on so many of the training images.
_VALIDATION = 5_000


def cifar10(folder: Path | None) -> Dataset:
    """Read CIFAR-10; errors as ``load_cifar``."""
    from torchvision.datasets import CIFAR10

    return load_cifar(CIFAR10, "cifar10", folder, classes=10)


def cifar100(folder: Path | None) -> Dataset:
    """Read CIFAR-100 with its fine labels; errors as ``load_cifar``."""
    from torchvision.datasets import CIFAR100

    return load_cifar(CIFAR100, "cifar100", folder, classes=100)


def cifar100_own(folder: Path | None) -> Dataset:
    """CIFAR-100 normalised by the statistics of its own training images; errors as ``load_cifar``."""
    from torchvision.datasets import CIFAR100

    return load_cifar(CIFAR100, "cifar100-own", folder, classes=100, statistics=None)


def cifar10_tune(folder: Path | None) -> Dataset:
    """CIFAR-10's training images, 5,000 of them held out to choose a learning rate on."""
    return tuning_split(cifar10(folder), _VALIDATION)


def cifar100_tune(folder: Path | None) -> Dataset:
    """CIFAR-100's training images, 5,000 of them held out to choose a learning rate on."""
    return tuning_split(cifar100(folder), _VALIDATION)


def load_cifar(
    reader: type[CIFAR10],
    name: str,
    folder: Path | None,
    *,
    classes: int,
    train: int = 50_000,
    test: int = 10_000,
    statistics: Statistics | None = _STATISTICS,
) -> Dataset:
    """CIFAR of a folder, downloaded by torchvision where it is missing, each channel normalised.

    Args:
        reader: torchvision's class; it knows the names and MD5 sums of its files.
        name: of the data set.
        folder: holds torchvision's folder of the batches, or is that folder.
        classes: how many there must be.
        train: number of training images there must be.
        test: number of test images there must be.
        statistics: means and standard deviations of the channels; None for those of the training images.

    Returns:
        Images ``(value - mean) / deviation``, by default with CIFAR-10's means and standard deviations.

    Raises:
        UserError: a file is missing or not the published one, or holds something else than the images that it should.
    """
    root = _root(reader, data_folder(folder))
    _check_files(reader, root)
    try:
        parts = [reader(str(root), train=part) for part in (True, False)]
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise UserError(
            f"{root / reader.base_folder} holds no CIFAR that torchvision can read ({error}): remove that folder and "
            "run again to download it"
        ) from None
    found = [
        _checked(part, root / reader.base_folder, classes, count)
        for part, count in zip(parts, (train, test), strict=True)
    ]
    (train_x, train_y), (test_x, test_y) = found
    description = f"{reader.__name__}, {train:,} images to train and {test:,} to test"
    digest = digest_of((train_x, train_y, test_x, test_y))
    chosen = _statistics_of(train_x) if statistics is None else statistics
    return Dataset(
        name, description, classes, _normalised(train_x, chosen), train_y, _normalised(test_x, chosen), test_y, digest
    )


def tuning_split(data: Dataset, count: int) -> Dataset:
    """The training images alone, ``count`` of them as a test set: what learning rates are chosen on.

    The split is part of the data set: the same for every seed of a run.
    """
    kept, held_out = hold_out(len(data.train_y), count, data.name, "tune")
    description = f"{data.description}: {count:,} of the images to train held out in place of the test"
    return Dataset(
        f"{data.name}-tune",
        description,
        data.classes,
        data.train_x[kept],
        data.train_y[kept],
        data.train_x[held_out],
        data.train_y[held_out],
        data.digest,
    )


def _root(reader: type[CIFAR10], folder: Path) -> Path:
    """Folder as torchvision wants it; downloads where there is none of the files."""
    if folder.name == reader.base_folder and folder.is_dir():
        return folder.parent
    if not (folder / reader.base_folder).is_dir():
        archive = folder / reader.filename
        given = archive.exists()
        try:
            reader(str(folder), download=True)
        except (OSError, RuntimeError, EOFError) as error:
            if not given:
                archive.unlink(missing_ok=True)
            raise UserError(
                f"{reader.__name__} is not in {folder} and could not be downloaded ({error}): put {reader.filename} "
                f"from {reader.url} there, or give the folder that has it as --data FOLDER"
            ) from None
    return folder


def _check_files(reader: type[CIFAR10], root: Path) -> None:
    from torchvision.datasets.utils import check_integrity

    files = [*reader.train_list, *reader.test_list, [reader.meta["filename"], reader.meta["md5"]]]
    for name, md5 in files:
        path = root / reader.base_folder / name
        cure = f"remove {path.parent} and run again to download it, or unpack {reader.filename} from {reader.url}"
        if not path.is_file():
            raise UserError(f"{path} is missing: {cure}")
        if not check_integrity(str(path), md5):
            raise UserError(f"{path} is truncated or corrupt, its MD5 sum is not {md5}: {cure}")


def _checked(part: CIFAR10, path: Path, classes: int, count: int) -> tuple[Tensor, Tensor]:
    if len(part.classes) != classes:
        raise UserError(f"{path} names {len(part.classes)} classes, expected {classes}")
    images, labels = torch.from_numpy(part.data), torch.tensor(part.targets)
    what = "train" if part.train else "test"
    if len(images) != count or len(labels) != count:
        raise UserError(f"{path} has {len(images)} images and {len(labels)} labels to {what}, expected {count}")
    if images.dtype != torch.uint8:
        raise UserError(f"{path} holds images of {images.dtype}, expected unsigned bytes")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise UserError(f"{path} holds labels from {labels.min()} to {labels.max()}, expected 0 to {classes - 1}")
    return images.permute(0, 3, 1, 2), labels


def _statistics_of(images: Tensor) -> Statistics:
    # A channel at a time: all of them in float64 would be over a gigabyte.
    channels = [images[:, channel].double() for channel in range(images.shape[1])]
    return (
        tuple(float(values.mean()) for values in channels),
        tuple(float(values.std(correction=0)) for values in channels),
    )


def _normalised(images: Tensor, statistics: Statistics) -> Tensor:
    mean, deviation = (torch.tensor(numbers).view(3, 1, 1) for numbers in statistics)
    # In place: the training images are 600 MB.
    return images.to(torch.float32, memory_format=torch.contiguous_format).sub_(mean).div_(deviation)
