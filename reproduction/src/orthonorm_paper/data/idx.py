"""Reader of IDX files, the format of MNIST, with errors that say what is wrong with which file."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import torch
from torch import Tensor

from orthonorm_paper.exceptions import UserError

_UNSIGNED_BYTE = 8


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Tensor of unsigned bytes in an IDX file, plain or gzipped (by its name).

    The header is two zero bytes, the type (8: unsigned byte), the number of dimensions, and each
    size as four bytes, most significant first; the values follow.

    Args:
        path: the file.
        dimensions: how many there must be: 3 for images, 1 for labels.

    Raises:
        UserError: the file is missing, unreadable, of another type or shape, or of a wrong length.
    """
    data = _bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0":
        raise UserError(f"{path} is not an IDX file: it begins with {data[:4].hex() or 'nothing'}")
    if data[2] != _UNSIGNED_BYTE or data[3] != dimensions:
        raise UserError(
            f"{path} holds type {data[2]} in {data[3]} dimensions, expected unsigned bytes (8) in "
            f"{dimensions}: are images and labels exchanged?"
        )
    start = 4 + 4 * dimensions
    sizes = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(dimensions)]
    if len(data) < start or len(data) - start != math.prod(sizes):
        raise UserError(
            f"{path} is truncated or corrupt: its header announces {sizes} values, and "
            f"{max(len(data) - start, 0)} bytes follow: get it again"
        )
    return torch.frombuffer(bytearray(data[start:]), dtype=torch.uint8).reshape(sizes)


def find_idx(folder: Path, name: str) -> Path:
    """``folder/name`` or its gzipped form; a ``UserError`` names both if neither is there."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise UserError(
        f"{folder / name} (or {name}.gz) is missing: put the four IDX files of MNIST there, or "
        "give no folder and let torchvision download them"
    )


def _bytes(path: Path) -> bytes:
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return file.read()
        return path.read_bytes()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a whole gzip file ({error}): get it again") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
