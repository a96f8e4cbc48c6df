"""The lines of a record: a header, a line an epoch and an end, each checked when it is made or read."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from orthonorm_paper.exceptions import UserError

from .checked import Positive, Whole, one_line
from .run import Run

SCHEMA = 1

Outcome = Literal["completed", "diverged", "stopped"]
COMPLETED, DIVERGED, STOPPED = get_args(Outcome)

# Note [clock fields]: what two runs of one `Run` may differ in although they did the same. Every
# other field takes part in the equality of records.
CLOCK_FIELDS = {"started", "finished", "seconds", "resumed"}

# A number that was measured; None where it was not finite, as JSON has no word for that.
Measured = Annotated[float | None, Field(allow_inf_nan=False)]
Count = Annotated[Whole, Field(lt=2**63)]

_CURE = "Delete the file and run again, or upgrade orthonorm if a later version wrote it."


class RecordError(UserError):
    """A record that is broken, incomplete or newer than this version; the text names file and cure."""


class _Line(BaseModel):
    # What a later version adds is kept.
    model_config = ConfigDict(frozen=True, strict=True, extra="allow", allow_inf_nan=False)

    def to_json(self, *, clock: bool = True) -> dict[str, Any]:
        """All fields as JSON values, with or without the clock fields."""
        return self.model_dump(mode="json", by_alias=True, exclude=None if clock else CLOCK_FIELDS)

    def text(self) -> str:
        """The line of the file: strict JSON, without the newline."""
        return json.dumps(self.to_json(), allow_nan=False, ensure_ascii=False)


class Data(_Line):
    """The data set of a run: in words, and the digest of its content."""

    description: str
    digest: str


class Header(_Line):
    """The run, and what else may have decided its result.

    ``devices`` (a text for each number of them that the run has had) and ``memory_format`` are there only where they
    are not one device and torch's own format.
    """

    kind: Literal["header"] = "header"
    schema_: int = Field(default=SCHEMA, alias="schema", ge=1)
    id: str
    run: Run
    data: Data
    steps_per_epoch: Count
    parameters: Count
    versions: dict[str, str]
    commit: str | None = None
    device: str
    devices: tuple[str, ...] | None = Field(default=None, min_length=1, exclude_if=lambda value: value is None)
    memory_format: str | None = Field(default=None, exclude_if=lambda value: value is None)
    threads: Count
    started: str

    @field_validator("schema_")
    @classmethod
    def _known(cls, schema: int) -> int:
        if schema > SCHEMA:
            raise ValueError(f"is {schema}, this version reads up to {SCHEMA}: upgrade orthonorm")
        return schema


class Epoch(_Line):
    """What an epoch ended with; other errors than the first, or what a later version measures, are numbers too."""

    __pydantic_extra__: dict[str, Measured]  # pyright: ignore[reportIncompatibleVariableOverride]  (pydantic's own way)

    kind: Literal["epoch"] = "epoch"
    epoch: Positive
    step: Count
    lr: float
    train_loss: Measured
    train_error: Measured = None
    test_loss: Measured = None
    test_error: Measured
    orthogonality_error: Measured
    seconds: Measured


class End(_Line):
    """How a run ended."""

    kind: Literal["end"] = "end"
    outcome: Outcome
    reason: str | None = None
    loss: Measured = None
    step: Count
    finished: str | None = None
    resumed: Count = 0


Line = Header | Epoch | End

_LINE = TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def finite(value: float | None) -> float | None:
    """A measured number for a line: None where it is not finite.

    Examples:
        >>> finite(float("inf")), finite(0.1)
        (None, 0.1)
    """
    return None if value is None or not math.isfinite(value) else value


def parse_line(path: Path, number: int, text: str) -> Line:
    """A line of a record's file, by its number.

    Raises:
        RecordError: not JSON, no line of a record, or a field of a wrong type; it names file, line, field and value.
    """
    try:
        return _LINE.validate_json(text)
    except ValidationError as error:
        raise RecordError(f"{path}, line {number}: {one_line(error)} {_CURE}") from None


def parts_of_record(path: Path, lines: Sequence[Line]) -> tuple[Header, tuple[Epoch, ...], End]:
    """The parts of one whole record.

    Raises:
        RecordError: no header or no end, one of them in the middle, or an epoch that is missing.
    """
    first, last, middle = lines[:1], lines[1:][-1:], lines[1:-1]
    if not first or not isinstance(first[0], Header):
        raise RecordError(f"{path} does not begin with a header: it is not a record")
    if not last or not isinstance(last[0], End):
        raise RecordError(f"{path} has no end: the run was cut off; delete the file and run again")
    epochs = tuple(line for line in middle if isinstance(line, Epoch))
    if len(epochs) < len(middle):
        raise RecordError(f"{path} has a header or an end in the middle: it is not one record")
    numbers = [line.epoch for line in epochs]
    if numbers != list(range(1, len(epochs) + 1)):
        raise RecordError(f"{path} has epochs {str(numbers)[:60]}, expected 1 to {len(epochs)}")
    return first[0], epochs, last[0]
