"""The file of a checkpoint: written whole beside its place, and read only if every byte is as it was written."""

from __future__ import annotations

import hashlib
import io
import json
import logging
import os
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.fabric.utilities.types import _PATH

from orthonorm_paper.records.files import Line, without_clock
from orthonorm_paper.records.writing import clear

# Note [the digest of a checkpoint]: torch's format has a checksum of each tensor, but of neither its table of contents
# nor its padding. A changed bit in the table can make other numbers of a tensor, and nobody notices. So 32 bytes follow
# what torch has written, where it does not look: the SHA-256 of all of it.
_DIGEST = 32


class CheckpointFile(TorchCheckpointIO):
    """Writes a checkpoint and its digest where it is told, on the disk when it returns.

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


def lines_of(checkpoint: Path, first: Line) -> list[Line]:
    """Lines that a checkpoint holds, if it is whole and was written by a run like this one."""
    if not checkpoint.exists():
        return []
    try:
        check_whole(checkpoint)
        state = torch.load(checkpoint, map_location="cpu", weights_only=True)
        lines = [json.loads(line) for line in state["record"]["lines"]]
        recorded = _but_devices(lines[0])
    except Exception as error:  # whatever is wrong with it, the run starts anew
        # torch's own text advises to run what the file holds.
        reason = "it holds more than numbers" if isinstance(error, UnpicklingError) else error
        logging.getLogger(__name__).warning("%s is not usable (%s): start anew", checkpoint, reason)
        return []
    first = json.loads(json.dumps(first))
    if recorded == _but_devices(first):
        return [_with_devices(lines[0], first), *lines[1:]]
    logging.getLogger(__name__).warning("%s is of another version or machine: start anew", checkpoint)
    return []


def _but_devices(header: Line) -> Line:
    return without_clock({name: value for name, value in header.items() if name != "devices"})


def _with_devices(header: Line, now: Line) -> Line:
    """The header with the devices of now behind those it has, if they are others; one device alone is not said."""
    alone = ["1"]
    before, here = header.get("devices", alone), now.get("devices", alone)
    return header if before[-1:] == here else header | {"devices": [*before, *here]}
