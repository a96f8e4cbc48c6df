"""The states that a results folder passes through while a run writes to it: what a kill at that moment leaves."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class States:
    """Copies of a folder, each named by the moment it is of.

    Args:
        folder: what is watched.
        kept: where the copies lie.
    """

    def __init__(self, folder: Path, kept: Path) -> None:
        self.folder, self.kept = folder, kept
        self.moments: list[Path] = []

    def keep(self, moment: str, torn: Path | None = None) -> None:
        """Copy the folder as it is; of a file that is being written, only its first half may have arrived."""
        copy = self.kept / f"{len(self.moments):02d} {moment}"
        shutil.copytree(self.folder, copy)
        if torn is not None:
            part = copy / torn.relative_to(self.folder)
            os.truncate(part, part.stat().st_size // 2)
        self.moments.append(copy)


@contextmanager
def watched(folder: Path, kept: Path) -> Iterator[States]:
    """Keep the state of a folder around whatever makes what was written last, renames or removes a file in it."""
    states = States(folder, kept)
    replace, fsync, unlink = os.replace, os.fsync, Path.unlink

    def inside(path: Any) -> bool:
        return Path(path).is_relative_to(folder)

    def watched_fsync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if inside(path) and path.is_file():
            states.keep(f"half of {path.suffix}", torn=path)
            states.keep(f"all of {path.suffix}")
        fsync(descriptor)

    def watched_replace(source: Any, target: Any) -> None:
        replace(source, target)
        if inside(target):
            states.keep(f"renamed to {Path(target).suffix}")

    def watched_unlink(path: Path, missing_ok: bool = False) -> None:
        there = inside(path) and path.exists() and path.name != ".probe"
        unlink(path, missing_ok=missing_ok)
        if there:
            states.keep(f"removed {path.suffix}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", watched_replace)
        patch.setattr(os, "fsync", watched_fsync)
        patch.setattr(Path, "unlink", watched_unlink)
        yield states
