"""ImageNet, and any folder of images, from the files themselves through torchvision's transforms.

It does not fit into memory as tensors: its images are read one by one, by the processes of a torch ``DataLoader``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from orthonorm_paper.exceptions import UserError

from .dataset import data_folder
from .order import generator

if TYPE_CHECKING:
    from torchvision.datasets import ImageFolder

_PARTS = ("train", "val")
_MEAN = (0.485, 0.456, 0.406)
_DEVIATION = (0.229, 0.224, 0.225)


class Images(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Images of a folder, each with its random transform a pure function of (seed, epoch, index).

    That triple is an item's key, so that processes which live through many epochs need no other word of which one it
    is, their number decides nothing, and a run that continues draws what it would have drawn.

    Raises:
        UserError: an image cannot be read.
    """

    def __init__(self, folder: ImageFolder, transform: Callable[..., Tensor]) -> None:
        self.folder: ImageFolder = folder
        self.transform: Callable[..., Tensor] = transform

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, key: tuple[int, int, int]) -> tuple[Float[Tensor, "3 h w"], int]:
        """Image and label."""
        seed, epoch, index = key
        path, label = self.folder.samples[index]
        try:
            image = self.folder.loader(path)
        except (OSError, SyntaxError) as error:  # Pillow's, for files that are truncated or no images
            raise UserError(f"{path} cannot be read as an image ({error}): get it again") from None
        # torchvision draws from torch's global generator.
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(generator(seed, "image", epoch, index).get_state())
            return self.transform(image), label


@dataclass(frozen=True)
class ImageFolders:
    """A data set of files: what ``Dataset`` says of one of tensors, with readers in their place.

    ``digest`` is a hash of the names of the files and their classes, not of their content.
    """

    name: str
    description: str
    classes: int
    shape: tuple[int, int, int]
    train: Images
    test: Images
    digest: str

    @property
    def count(self) -> int:
        """Number of training images."""
        return len(self.train)

    @property
    def tops(self) -> tuple[int, ...]:
        """The ``k`` of the top-k errors that are measured."""
        return (1, 5) if self.classes > 5 else (1,)


def load_imagenet(
    folder: Path | None,
    *,
    classes: int = 1_000,
    train: int = 1_281_167,
    test: int = 50_000,
    side: int = 224,
    colour: bool = False,
) -> ImageFolders:
    """ImageNet of 2012 from ``train`` and ``val``, each with a folder a class.

    Args:
        folder: holds ``train`` and ``val``.
        classes: number of classes there must be.
        train: number of training images there must be.
        test: number of validation images there must be.
        side: height and width of the images that come out.
        colour: change the colours of training images at random too, as the public ResNet does: ``random_crop``.

    Raises:
        UserError: a folder is missing, or holds other classes or another number of images.
    """
    root = data_folder(folder)
    parts = {name: _images(root / name, _cure_of_imagenet(root, name)) for name in _PARTS}
    for (name, part), count in zip(parts.items(), (train, test), strict=True):
        if len(part.classes) != classes or len(part) != count:
            raise UserError(
                f"{root / name} has {len(part):,} images in {len(part.classes)} classes, "
                f"expected {count:,} in {classes}: {_cure_of_imagenet(root, name)}"
            )
    description = f"ImageNet 2012, {train:,} images to train and {test:,} to test"
    return _of_parts("imagenet-colour" if colour else "imagenet", description, root, parts, side, colour=colour)


def load_imagenet_colour(folder: Path | None) -> ImageFolders:
    """ImageNet with random colours; errors as ``load_imagenet``."""
    return load_imagenet(folder, colour=True)


def load_image_folder(folder: Path | None, *, side: int = 224) -> ImageFolders:
    """Images of any classes from ``train`` and ``val``, each with a folder a class, transformed as ImageNet's.

    Args:
        folder: holds ``train`` and ``val``.
        side: height and width of the images that come out.

    Raises:
        UserError: a folder is missing or holds no images, or the two have different classes.
    """
    root = data_folder(folder)
    cure = f"put images into {root}/train/CLASS and {root}/val/CLASS"
    parts = {name: _images(root / name, cure) for name in _PARTS}
    train, test = (len(parts[name]) for name in _PARTS)
    classes = len(parts["train"].classes)
    description = f"images of {root.absolute().name}, {classes} classes, {train:,} to train and {test:,} to test"
    return _of_parts("image-folder", description, root, parts, side)


def _of_parts(
    name: str, description: str, root: Path, parts: dict[str, ImageFolder], side: int, *, colour: bool = False
) -> ImageFolders:
    train, test = (parts[part] for part in _PARTS)
    if train.classes != test.classes:
        other = set(train.classes) ^ set(test.classes)
        raise UserError(f"{root}: train and val have different classes, among them {min(other)}")
    digest = hashlib.sha256()
    for part in _PARTS:
        for path, label in parts[part].samples:
            digest.update(f"{part}/{train.classes[label]}/{Path(path).name}\n".encode())
    return ImageFolders(
        name,
        description,
        len(train.classes),
        (3, side, side),
        Images(train, random_crop(side, colour=colour)),
        Images(test, centre_crop(side)),
        digest.hexdigest()[:16],
    )


def random_crop(side: int, *, colour: bool = False) -> Callable[..., Tensor]:
    """Random crop of 8 to 100 % of the area, resized; mirrored half of the time; normalised a channel.

    Args:
        side: height and width that come out.
        colour: with ``jitter`` before, and ``Lighting`` after the conversion to numbers.
    """
    from torchvision.transforms import v2

    from .colour import Lighting, jitter

    cut = [v2.RandomResizedCrop(side, antialias=True), v2.RandomHorizontalFlip()]
    *convert, normalise = _normalised()
    if not colour:
        return v2.Compose([*cut, *convert, normalise])
    return v2.Compose([*cut, jitter(), *convert, Lighting(), normalise])


def centre_crop(side: int) -> Callable[..., Tensor]:
    """The single crop of the paper: the centre, after the shorter side became 256 for 224."""
    from torchvision.transforms import v2

    return v2.Compose([v2.Resize(side * 256 // 224, antialias=True), v2.CenterCrop(side), *_normalised()])


def _normalised() -> list[torch.nn.Module]:
    from torchvision.transforms import v2

    return [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(list(_MEAN), list(_DEVIATION))]


def _cure_of_imagenet(root: Path, name: str) -> str:
    archive = {"train": "ILSVRC2012_img_train.tar", "val": "ILSVRC2012_img_val.tar"}[name]
    return (
        f"get {archive} and ILSVRC2012_devkit_t12.tar.gz from image-net.org into {root}, and let "
        f"torchvision.datasets.ImageNet({str(root)!r}, split={name!r}) check and unpack them"
    )


def _images(path: Path, cure: str) -> ImageFolder:
    from torchvision.datasets import ImageFolder

    if not path.is_dir():
        raise UserError(f"{path} is missing: {cure}")
    try:
        return ImageFolder(str(path))
    except FileNotFoundError as error:
        raise UserError(f"{path} is not a folder of images in a folder a class ({error}): {cure}") from None
