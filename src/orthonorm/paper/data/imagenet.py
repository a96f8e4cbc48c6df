"""ImageNet from folders of JPEG files, through torchvision's transforms.

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

from orthonorm.paper.data.dataset import data_folder
from orthonorm.paper.data.order import generator
from orthonorm.paper.errors import UserError

if TYPE_CHECKING:
    from torchvision.datasets import ImageFolder

_MEAN = (0.485, 0.456, 0.406)
_DEVIATION = (0.229, 0.224, 0.225)


class Images(torch.utils.data.Dataset[tuple[Tensor, int]]):
    """Images of a folder, each with its random transform a pure function of (seed, epoch, index).

    An item's key is ``(epoch, index)``, so that processes which live through many epochs need no other word of which
    one it is, and a run that continues draws what it would have drawn.

    Raises:
        UserError: an image cannot be read.
    """

    def __init__(self, folder: ImageFolder, transform: Callable[..., Tensor], seed: int) -> None:
        self.folder, self.transform, self.seed = folder, transform, seed

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, key: tuple[int, int]) -> tuple[Float[Tensor, "3 h w"], int]:
        """Image and label."""
        epoch, index = key
        path, label = self.folder.samples[index]
        try:
            image = self.folder.loader(path)
        except (OSError, SyntaxError) as error:  # Pillow's, for files that are truncated or no images
            raise UserError(f"{path} cannot be read as an image ({error}): get it again") from None
        # torchvision draws from torch's global generator.
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(generator(self.seed, "image", epoch, index).get_state())
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


def load_imagenet(
    folder: Path | None,
    *,
    seed: int,
    classes: int = 1_000,
    train: int = 1_281_167,
    test: int = 50_000,
    side: int = 224,
) -> ImageFolders:
    """ImageNet of 2012 from ``train`` and ``val``, each with a folder a class.

    Args:
        folder: holds ``train`` and ``val``.
        seed: of the random crops and mirrored images.
        classes: number of classes there must be.
        train: number of training images there must be.
        test: number of validation images there must be.
        side: height and width of the images that come out.

    Raises:
        UserError: a folder is missing, or holds other classes or another number of images.
    """
    root = data_folder(folder)
    parts = {"train": _part(root, "train", classes, train), "val": _part(root, "val", classes, test)}
    if parts["train"].classes != parts["val"].classes:
        other = set(parts["train"].classes) ^ set(parts["val"].classes)
        raise UserError(f"{root}: train and val have different classes, among them {min(other)}")
    digest = hashlib.sha256()
    for name, part in parts.items():
        for path, label in part.samples:
            digest.update(f"{name}/{part.classes[label]}/{Path(path).name}\n".encode())
    return ImageFolders(
        "imagenet",
        f"ImageNet 2012, {train:,} images to train and {test:,} to test",
        classes,
        (3, side, side),
        Images(parts["train"], random_crop(side), seed),
        Images(parts["val"], centre_crop(side), seed),
        digest.hexdigest()[:16],
    )


def random_crop(side: int) -> Callable[..., Tensor]:
    """Random crop of 8 to 100 % of the area, resized; mirrored half of the time; normalised a channel."""
    from torchvision.transforms import v2

    return v2.Compose([v2.RandomResizedCrop(side, antialias=True), v2.RandomHorizontalFlip(), *_normalised()])


def centre_crop(side: int) -> Callable[..., Tensor]:
    """The single crop of the paper: the centre, after the shorter side became 256 for 224."""
    from torchvision.transforms import v2

    return v2.Compose([v2.Resize(side * 256 // 224, antialias=True), v2.CenterCrop(side), *_normalised()])


def _normalised() -> list[torch.nn.Module]:
    from torchvision.transforms import v2

    return [v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(list(_MEAN), list(_DEVIATION))]


def _part(root: Path, name: str, classes: int, count: int) -> ImageFolder:
    from torchvision.datasets import ImageFolder

    path = root / name
    archive = {"train": "ILSVRC2012_img_train.tar", "val": "ILSVRC2012_img_val.tar"}[name]
    cure = (
        f"get {archive} and ILSVRC2012_devkit_t12.tar.gz from image-net.org into {root}, and let "
        f"torchvision.datasets.ImageNet({str(root)!r}, split={name!r}) check and unpack them"
    )
    if not path.is_dir():
        raise UserError(f"{path} is missing: {cure}")
    try:
        found = ImageFolder(str(path))
    except FileNotFoundError as error:
        raise UserError(f"{path} is not a folder of images in a folder a class ({error}): {cure}") from None
    if len(found.classes) != classes or len(found) != count:
        raise UserError(
            f"{path} has {len(found):,} images in {len(found.classes)} classes, expected {count:,} in {classes}: {cure}"
        )
    return found
