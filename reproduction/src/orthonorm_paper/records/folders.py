"""The records of an experiment: a folder of files, one packed file beside it, or both.

The packed file of ``results/NAME`` is ``results/NAME.jsonl.gz``: the files of the folder behind each other, by the ids
of their runs. The same records give the same bytes.
"""

from __future__ import annotations

import functools
import gzip
import io
import zlib
from collections.abc import Mapping
from pathlib import Path

from .files import Record, RecordError, parse_records, read_record, record_path, same, text_of, write_whole
from .run import Run


def packed_path(folder: Path) -> Path:
    """Where the packed records of a results folder lie."""
    return folder.parent / f"{folder.name}.jsonl.gz"


def read_folder(folder: Path) -> list[Record]:
    """All finished records of a results folder and of the packed file beside it, by the ids of their runs.

    An absent folder has none. A record that is in both must be the same outside the clock fields.

    Raises:
        RecordError: a broken file, or two different records of one run.
    """
    found = dict(_packed(packed_path(folder)))
    for path in sorted(folder.glob("*.jsonl")):
        record = read_record(path)
        found[record.run.id] = _agreed(record, path, found.get(record.run.id), folder)
    return [found[name] for name in sorted(found)]


def find_record(folder: Path, run: Run) -> Record | None:
    """The finished record of a run, wherever ``read_folder`` would find it; None if there is none.

    Raises:
        RecordError: as ``read_folder``, or the file of that name holds the record of another run.
    """
    path = record_path(folder, run)
    packed = _packed(packed_path(folder)).get(run.id)
    if not path.exists():
        return packed
    record = read_record(path)
    if record.run != run:
        raise RecordError(f"{path} holds the record of another run, {record.run.id}: move it away")
    return _agreed(record, path, packed, folder)


def recorded_ids(folder: Path) -> set[str]:
    """Ids of the runs with a finished record; the files of the folder are not opened."""
    return {path.stem for path in folder.glob("*.jsonl")} | set(_packed(packed_path(folder)))


def pack(folder: Path) -> Path:
    """Pack all that ``read_folder`` finds into the packed file; the folder stays as it is.

    Raises:
        RecordError: no record, or as ``read_folder``.
    """
    records = read_folder(folder)
    if not records:
        raise RecordError(f"{folder} holds no record to pack: give the folder of an experiment that has run")
    packed = io.BytesIO()
    # Name and time of the file would be part of it.
    with gzip.GzipFile("", "wb", fileobj=packed, mtime=0) as file:
        file.write("".join(map(text_of, records)).encode())
    return write_whole(packed_path(folder), packed.getvalue())


def _agreed(record: Record, path: Path, packed: Record | None, folder: Path) -> Record:
    if packed is not None and not same(record, packed):
        raise RecordError(f"{path} and {packed_path(folder)} hold different records of one run: move one of them away")
    return record


def _packed(path: Path) -> Mapping[str, Record]:
    """The records of a packed file by the ids of their runs; none where there is no file."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    return _unpacked(path, status.st_mtime_ns, status.st_size)


# A sweep asks for one run after the other; another time or size is another file.
@functools.lru_cache(maxsize=8)
def _unpacked(path: Path, _time: int, _size: int) -> Mapping[str, Record]:
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise RecordError(f"packed records {path} cannot be read ({error}): get the file again") from None
    return {record.run.id: record for record in parse_records(path, content, several=True)}
