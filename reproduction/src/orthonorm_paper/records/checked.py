"""Values checked by pydantic, with errors in one line: the field, the rule and the value that was given."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from orthonorm_paper.exceptions import UserError

T = TypeVar("T", bound=type)
R = TypeVar("R")

# Strict: JSON's true is no number and a text no count. A whole number is a right value for a float.
Switch = Annotated[bool, Field(strict=True)]
Whole = Annotated[int, Field(strict=True, ge=0)]
Positive = Annotated[int, Field(strict=True, ge=1)]
NotNegative = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]

# How many errors a text names, and how much of each value.
_ERRORS = 3
_LENGTH = 60
_OTHER_FIELDS = {"missing": "is missing", "unexpected_keyword_argument": "is unknown", "extra_forbidden": "is unknown"}


@dataclass_transform(frozen_default=True, field_specifiers=(Field, dataclasses.field))
def checked(*, kw_only: bool = False) -> Callable[[T], T]:
    """Decorator of a frozen dataclass whose fields are checked when it is made; what is wrong is a ``UserError``.

    Examples:
        >>> @checked()
        ... class Walk:
        ...     steps: Positive
        >>> Walk(0)
        Traceback (most recent call last):
        ...
        orthonorm_paper.exceptions.UserError: Walk: steps should be greater than or equal to 1; got 0.
    """

    def decorate(cls: T) -> T:
        made: Any = dataclass(frozen=True, kw_only=kw_only, config=ConfigDict(extra="forbid"))(cls)
        check = made.__init__
        names = [field.name for field in dataclasses.fields(made) if not field.kw_only]

        @functools.wraps(check)
        def _initialize(self: Any, *values: Any, **named: Any) -> None:
            # Pydantic's errors give the place of a value where they do not have its name.
            placed = dict(zip(names, values, strict=False))
            in_one_line(cls.__name__, lambda: check(self, *values[len(names) :], **placed, **named))

        made.__init__ = _initialize
        return made

    return decorate


def in_one_line(what: str, check: Callable[[], R]) -> R:
    """What a check of pydantic's gives; its error becomes a ``UserError`` about ``what``."""
    try:
        return check()
    except ValidationError as error:
        raise UserError(f"{what}: {one_line(error)}") from None


def one_line(error: ValidationError) -> str:
    """The first few errors in one line, with what they have in common as a hint at the end."""
    found = error.errors(include_url=False)
    texts = [_text(entry) for entry in found[:_ERRORS]]
    if len(found) > _ERRORS:
        texts.append(f"And {len(found) - _ERRORS} more.")
    hint = " Was it written by another version?" if _OTHER_FIELDS.keys() & {entry["type"] for entry in found} else ""
    return " ".join(texts) + hint


def _text(entry: Any) -> str:
    place, message = ".".join(map(str, entry["loc"])), entry["msg"]
    if entry["type"] in _OTHER_FIELDS:
        return f"{place} {_OTHER_FIELDS[entry['type']]}."
    if entry["type"] == "value_error":
        # One of our own, which says what was given.
        return f"{place} {entry['ctx']['error']}".strip()
    # "Input should be ..." and "String should have ...": the field is the subject.
    rule = "should" + message.partition(" should")[2] if " should" in message else message
    value = repr(entry["input"])
    shown = value if len(value) <= _LENGTH else value[:_LENGTH] + "..."
    return f"{place} {rule}; got {shown}.".strip()
