"""The file of a checkpoint: written whole beside its place, and read only if every byte is as it was written."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.fabric.utilities.types import _PATH

from orthonorm.paper.resultfiles import clear


class CheckpointFile(TorchCheckpointIO):
    """Writes a checkpoint where it is told, on the disk when it returns.

    Lightning's own is written to the system's folder of temporary files first, which may be small, on another disk, and
    keeps what a killed process left there.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: _PATH, storage_options: Any = None) -> None:
        """Write a checkpoint to a file."""
        content = io.BytesIO()
        torch.save(checkpoint, content)
        with clear(Path(path)).open("xb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())


def check_whole(path: Path) -> None:
    """A ``ValueError`` for a checkpoint that lost or changed a byte; torch reads it without looking at its checksums.

    Raises:
        OSError, ValueError: the file cannot be read, or is not what was written.
    """
    try:
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
    except (zipfile.BadZipFile, NotImplementedError, EOFError, RuntimeError) as error:
        raise ValueError(f"it is not a whole checkpoint: {error}") from None
    if damaged is not None:
        raise ValueError(f"the checksum of {damaged} is not that of its content")
