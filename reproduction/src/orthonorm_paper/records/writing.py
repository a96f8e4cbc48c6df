"""Writing to a results folder: a failure names the file and the cure, and a link leads nowhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from orthonorm_paper.exceptions import UserError


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a failure to write into a ``UserError``: a full disk, a quota, a folder taken away.

    Examples:
        >>> with writing(Path("results/a.jsonl")):
        ...     raise OSError(28, "No space left on device")
        Traceback (most recent call last):
        ...
        orthonorm_paper.exceptions.UserError: results/a.jsonl cannot be written (No space left on device): ...
    """
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror or error}): make room or give another results folder; what is "
            "recorded is kept, and the same command continues from the last checkpoint"
        ) from error


def clear(path: Path) -> Path:
    """The path with nothing at it: what lay there is removed, and a link is not followed."""
    path.unlink(missing_ok=True)
    return path
