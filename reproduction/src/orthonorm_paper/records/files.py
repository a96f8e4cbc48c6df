"""Records: one JSONL file a run, with a header, a line an epoch and an end.

A run in progress writes ``<id>.jsonl.part`` in the folder ``.work``; only its end gives the file
its name, so that a process killed at any moment leaves nothing that reads as a finished result.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orthonorm_paper.exceptions import UserError

from .lines import CLOCK_FIELDS as CLOCK_FIELDS
from .lines import COMPLETED as COMPLETED
from .lines import DIVERGED as DIVERGED
from .lines import STOPPED as STOPPED
from .lines import End as End
from .lines import Epoch as Epoch
from .lines import Header as Header
from .lines import Line as Line
from .lines import RecordError as RecordError
from .lines import parse_line, parts_of_record
from .run import Run
from .writing import clear, writing


@dataclass(frozen=True)
class Record:
    """A record in memory: the lines of its file."""

    header: Header
    epochs: tuple[Epoch, ...]
    end: End

    @property
    def run(self) -> Run:
        """The run that the header describes."""
        return self.header.run

    @property
    def outcome(self) -> str:
        """``COMPLETED``, ``DIVERGED`` or ``STOPPED``."""
        return self.end.outcome

    @property
    def outcome_text(self) -> str:
        """The outcome in words: "completed", "diverged at step 12" or "stopped at step 12"."""
        if self.outcome == COMPLETED:
            return COMPLETED
        return f"{self.outcome} at step {self.end.step}"

    @property
    def seconds(self) -> float:
        """Seconds spent in training steps over all epochs recorded."""
        return sum(line.seconds or 0.0 for line in self.epochs)

    def last(self, field: str) -> float | None:
        """Value of a field in the last epoch; None before the first one or where it was not finite."""
        return getattr(self.epochs[-1], field) if self.epochs else None

    def final(self, field: str) -> float:
        """Value of a field in the last epoch; infinite where it was not finite, or the run diverged."""
        value = self.last(field)
        return math.inf if value is None or self.outcome == DIVERGED else value

    def lines(self) -> list[Line]:
        """All lines in order."""
        return [self.header, *self.epochs, self.end]


def same(a: Record, b: Record) -> bool:
    """Whether two records agree outside the clock fields: Note [clock fields]."""
    return [line.to_json(clock=False) for line in a.lines()] == [line.to_json(clock=False) for line in b.lines()]


def record_path(folder: Path, run: Run) -> Path:
    """Where the finished record of a run lies in a results folder."""
    return folder / f"{run.id}.jsonl"


def work_path(folder: Path, run: Run, suffix: str) -> Path:
    """Where a run in progress keeps a file: ``.part`` lines, checkpoint, lock."""
    return folder / ".work" / f"{run.id}{suffix}"


class RecordWriter:
    """Writes the lines of one run; the record exists once ``finish`` has returned.

    Args:
        folder: results folder.
        run: the run; it names the file.
        lines: the lines to begin with: the header, and on resuming those of the finished epochs.
    """

    def __init__(self, folder: Path, run: Run, lines: Iterable[Line]) -> None:
        self.final: Path = record_path(folder, run)
        self.part: Path = work_path(folder, run, ".jsonl.part")
        with writing(self.part):
            self.part.parent.mkdir(parents=True, exist_ok=True)
            self._file = clear(self.part).open("x", encoding="utf-8")
        try:
            for line in lines:
                self.write(line)
        except UserError:
            self.close()
            raise

    def write(self, line: Line) -> None:
        """Append a line."""
        with writing(self.part):
            self._file.write(line.text() + "\n")
            self._file.flush()

    def finish(self, end: End) -> Path:
        """Append the end and give the file its name; returns the path of the record."""
        self.write(end)
        with writing(self.final):
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self.part, self.final)
        _sync_folder(self.final.parent)
        return self.final

    def close(self) -> None:
        """Leave the run unfinished; what was written stays in the work folder."""
        # What a full disk did not take cannot be written now either, and the checkpoint has the lines.
        with contextlib.suppress(OSError):
            self._file.close()


def write_record(folder: Path, record: Record) -> Path:
    """Write a whole record, for instance one that came from another machine."""
    return write_whole(record_path(folder, record.run), text_of(record).encode())


def text_of(record: Record) -> str:
    """The lines of a record's file."""
    return "".join(line.text() + "\n" for line in record.lines())


def write_whole(path: Path, content: bytes) -> Path:
    """Write a file so that a kill at any moment leaves the old one or the new one."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".part", delete=False) as file:
            try:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.unlink(file.name)
                raise
        os.replace(file.name, path)
    _sync_folder(path.parent)
    return path


def read_record(path: Path) -> Record:
    """Read and check a finished record.

    Raises:
        RecordError: the file is missing, not strict JSON, incomplete, or of a newer schema.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecordError(f"record {path} cannot be read: {error.strerror}") from None
    (record,) = parse_records(path, content, several=False)
    return record


def parse_records(path: Path, content: bytes, *, several: bool) -> list[Record]:
    """The records of a file: one, or several that follow each other, each beginning with its header.

    Raises:
        RecordError: as ``read_record``.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise RecordError(f"record {path} is not UTF-8: delete it and run again") from None
    if text and not text.endswith("\n"):
        raise RecordError(f"{path} has no end: the run was cut off; delete the file and run again")
    lines = [parse_line(path, number, line) for number, line in enumerate(text.split("\n"), 1) if line]
    headers = (place for place, line in enumerate(lines) if several and place and isinstance(line, Header))
    return [
        Record(*parts_of_record(path, lines[begin:end])) for begin, end in itertools.pairwise([0, *headers, len(lines)])
    ]


def _sync_folder(folder: Path) -> None:
    # A rename is safe against power loss once its folder is on disk; not every system opens folders.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
