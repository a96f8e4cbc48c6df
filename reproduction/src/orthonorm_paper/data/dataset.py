"""What a data set is: tensors ready for training."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor


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
    def count(self) -> int:
        """Number of training images."""
        return len(self.train_y)

    @property
    def tops(self) -> tuple[int, ...]:
        """The ``k`` of the top-k errors that are measured."""
        return (1,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one image."""
        return tuple(self.train_x.shape[1:])

    def to(self, device: torch.device) -> Dataset:
        """The same data on a device."""
        names = ("train_x", "train_y", "test_x", "test_y")
        return dataclasses.replace(self, **{name: getattr(self, name).to(device) for name in names})


def digest_of(tensors: Iterable[Tensor]) -> str:
    """Hash of the values of tensors, 16 hexadecimal digits.

    Examples:
        >>> digest_of([torch.zeros(2)]) == digest_of([torch.zeros(1), torch.zeros(1)]) != digest_of([torch.ones(2)])
        True
    """
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def data_folder(folder: Path | None) -> Path:
    """The folder given, or ``data`` in the working directory."""
    return Path("data") if folder is None else folder
