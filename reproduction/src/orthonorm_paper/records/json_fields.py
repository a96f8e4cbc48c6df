"""Fields of a frozen dataclass from JSON: which there must be, and of what type."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from orthonorm_paper.exceptions import UserError

# JSON has one kind of number: a whole one is a right value for a float, never the other way round.
_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "bool": (bool,), "int": (int,), "float": (int, float)}


def fields_from_json(cls: type, data: Any, what: str) -> dict[str, Any]:
    """Keyword arguments for a dataclass: floats as floats, lists as tuples.

    Args:
        cls: the dataclass; the types of its simple fields are checked.
        data: what JSON gave.
        what: name of the object in messages.

    Raises:
        UserError: not an object, a field unknown or missing, or of a wrong type.
    """
    if not isinstance(data, dict):
        raise UserError(f"{what} is a JSON object, got {data!r}")
    fields = {field.name: field for field in dataclasses.fields(cls)}
    needed = {name for name, field in fields.items() if field.default is dataclasses.MISSING}
    unknown, missing = sorted(data.keys() - fields.keys()), sorted(needed - data.keys())
    if unknown or missing:
        raise UserError(f"{what} has unknown fields {unknown} and lacks {missing}; was it written by another version?")
    return {name: _value(f"{name} of {what}", fields[name].type, value) for name, value in data.items()}


def _value(name: str, annotation: Any, value: Any) -> Any:
    wanted = _TYPES.get(annotation)
    if annotation.startswith("tuple[int"):
        if not isinstance(value, list) or not all(type(item) is int for item in value):
            raise UserError(f"{name} is a list of whole numbers, got {value!r}")
        return tuple(value)
    if wanted is None:
        return value
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise UserError(f"{name} is of type {annotation}, got {value!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{name} is a finite number, got {value!r}")
    return float(value) if annotation == "float" else value
