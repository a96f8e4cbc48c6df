"""The file of a checkpoint: written whole beside its place, and read only if every byte is as it was written."""

from __future__ import annotations

import hashlib
import io
import logging
import os
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.fabric.utilities.types import _PATH

from orthonorm_paper.records.lines import Epoch, Header, parse_line
from orthonorm_paper.records.writing import clear

# Note [the digest of a checkpoint]: torch's format has a checksum of each tensor, but of neither its table of contents
# nor its padding. A changed bit in the table can make other numbers of a tensor, and nobody notices. So 32 bytes follow
# what torch has written, where it does not look: the SHA-256 of all of it.
_DIGEST = 32


class CheckpointFile(TorchCheckpointIO):
    """Writes a checkpoint and its digest to a given path, on the disk when it returns.

    Lightning's own is written to the system's folder of temporary files first, which may be small, on another disk, and
    keeps what a killed process left there.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: _PATH, storage_options: Any = None) -> None:
        """Write a checkpoint to a file."""
        content = io.BytesIO()
        torch.save(checkpoint, content)
        with clear(Path(path)).open("xb") as file:
            file.write(content.getbuffer())
            file.write(hashlib.sha256(content.getbuffer()).digest())
            file.flush()
            os.fsync(file.fileno())


def check_whole(path: Path) -> None:
    """A ``ValueError`` for a checkpoint of which a byte is lost or changed: Note [the digest of a checkpoint].

    Raises:
        OSError, ValueError: the file cannot be read, or is not what was written.
    """
    content = memoryview(path.read_bytes())
    if hashlib.sha256(content[:-_DIGEST]).digest() != content[-_DIGEST:]:
        raise ValueError("it is not a whole checkpoint: its digest is not that of its content")


def begun(checkpoint: Path, header: Header) -> tuple[Header, tuple[Epoch, ...]] | None:
    """Header and epochs that a checkpoint holds, if it is whole and was written by a run like the header's.

    Devices may be others: the header then has those of now behind those of before.
    """
    if not checkpoint.exists():
        return None
    try:
        check_whole(checkpoint)
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        lines = [parse_line(checkpoint, number, line) for number, line in enumerate(state["record"]["lines"], 1)]
        before, epochs = lines[0], tuple(line for line in lines if isinstance(line, Epoch))
    except Exception as error:  # whatever is wrong with it, the run starts again
        # torch's own text advises to run what the file holds.
        reason = "it holds more than numbers" if isinstance(error, UnpicklingError) else error
        logging.getLogger(__name__).warning("%s is not usable (%s): start again", checkpoint, reason)
        return None
    if not isinstance(before, Header) or _but_devices(before) != _but_devices(header):
        logging.getLogger(__name__).warning("%s is of another version or machine: start again", checkpoint)
        return None
    # One device alone is not said, unless there were others.
    old, new = before.devices or ("1",), header.devices or ("1",)
    return before if old[-1:] == new else before.model_copy(update={"devices": old + new}), epochs


def _but_devices(header: Header) -> dict[str, Any]:
    return header.model_copy(update={"devices": None}).to_json(clock=False)
