"""The lines of a record's file as data: strict JSON, and of the types that reports count on."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from orthonorm_paper.exceptions import UserError

from .run import Run

SCHEMA = 1

COMPLETED, DIVERGED, STOPPED = "completed", "diverged", "stopped"
OUTCOMES = (COMPLETED, DIVERGED, STOPPED)

Line = dict[str, Any]

# Of whole numbers in a record: seeds have 64 bits.
_DIGITS = 20


class RecordError(UserError):
    """A record that is broken, incomplete or newer than this version; the text names file and cure."""


def parse_line(path: Path, number: int, line: str) -> Line:
    """One line of a record's file.

    Args:
        path: the file, for messages.
        number: of the line.
        line: its text.

    Raises:
        RecordError: not strict JSON, a number past all bounds, no line of a record, or a field of a wrong type.
    """
    try:
        data = json.loads(line, parse_constant=_refuse, parse_float=_finite, parse_int=_integer)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path}, line {number}: not strict JSON ({error}): delete the file and run again") from None
    if not isinstance(data, dict) or data.get("kind") not in [*_FIELDS]:
        raise RecordError(f"{path}, line {number}: not a line of a record, got {line[:60]!r}")
    return data


def check_lines(path: Path, lines: Sequence[Line], *, ends_in_newline: bool) -> None:
    """Check that lines are one whole record.

    Raises:
        RecordError: no header or no end, a newer schema, a header that describes no run, epochs missing, a field
            missing or of a wrong type.
    """
    if not lines or lines[0]["kind"] != "header":
        raise RecordError(f"{path} does not begin with a header: it is not a record")
    schema = lines[0].get("schema")
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise RecordError(f"{path} has no schema number in its header, got {schema!r}")
    if schema > SCHEMA:
        raise RecordError(f"{path} has schema {schema}, this version reads up to {SCHEMA}: upgrade orthonorm")
    if lines[-1]["kind"] != "end" or not ends_in_newline:
        raise RecordError(f"{path} has no end: the run was cut off; delete the file and run again")
    if any(line["kind"] != "epoch" for line in lines[1:-1]):
        raise RecordError(f"{path} has a header or an end in the middle: it is not one record")
    epochs = [line.get("epoch") for line in lines[1:-1]]
    if epochs != list(range(1, len(epochs) + 1)):
        raise RecordError(f"{path} has epochs {str(epochs)[:60]}, expected 1 to {len(epochs)}")
    if lines[-1].get("outcome") not in OUTCOMES:
        raise RecordError(f"{path} ends with the outcome {lines[-1].get('outcome')!r}")
    try:
        Run.from_json(lines[0].get("run"))
    except UserError as error:
        raise RecordError(f"{path} describes no run that this version knows: {error}") from None
    for line in lines:
        _check_fields(path, line)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:_DIGITS]} is no finite number")
    return value


def _integer(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"{text[:_DIGITS]}... has more than {_DIGITS} digits")
    return int(text)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _or_null(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(_is_text, value))


def _is_data(value: Any) -> bool:
    return isinstance(value, dict) and _is_text(value.get("description")) and _is_text(value.get("digest"))


def _are_versions(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


# Of each kind of line: the fields that reports read, and what their values are.
_FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "header": {
        "id": _is_text,
        "data": _is_data,
        "steps_per_epoch": _is_count,
        "parameters": _is_count,
        "versions": _are_versions,
        "device": _is_text,
        "threads": _is_count,
    },
    "epoch": {
        "step": _is_count,
        "lr": _is_number,
        "train_loss": _or_null(_is_number),
        "test_error": _or_null(_is_number),
        "orthogonality_error": _or_null(_is_number),
        "seconds": _or_null(_is_number),
    },
    "end": {"step": _is_count},
}
_OPTIONAL: dict[str, dict[str, Callable[[Any], bool]]] = {
    "header": {"devices": _are_texts, "memory_format": _is_text, "commit": _or_null(_is_text)},
    "epoch": {},
    "end": {"reason": _or_null(_is_text), "loss": _or_null(_is_number), "resumed": _is_count},
}


def _check_fields(path: Path, line: Line) -> None:
    kind = line["kind"]
    where = f"{path}, epoch {line['epoch']}" if kind == "epoch" else f"{path}, {kind}"
    needed, optional = _FIELDS[kind], dict(_OPTIONAL[kind])
    if kind == "epoch":
        # Other errors than the first, or what a later version measures: numbers too.
        optional |= {name: _or_null(_is_number) for name in line.keys() - {"kind"} - needed.keys()}
    missing = sorted(needed.keys() - line.keys())
    if missing:
        raise RecordError(f"{where} lacks {', '.join(missing)}: delete the file and run again")
    for name, right in (needed | optional).items():
        if name in line and not right(line[name]):
            raise RecordError(
                f"{where}: {name} is of a wrong type, got {str(line[name])[:60]!r}: delete the file and run again"
            )
