"""`Run`: everything that decides a result, and nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orthonorm_paper.exceptions import UserError

from .json_fields import fields_from_json
from .schedules import SCHEDULES, Constant, Schedule, schedule_from_json, schedule_to_json

Scalar = str | int | float | bool
Arguments = tuple[tuple[str, Scalar], ...]

OPTIMIZERS = ("sgd", "adam")
PRECISIONS = ("32-true", "64-true", "16-mixed", "bf16-mixed")


@dataclass(frozen=True, kw_only=True)
class Run:
    """One training run: two runs with equal fields give equal records on one machine.

    What only decides how fast it is done (number of devices at the same effective batch, memory
    format, threads, folders) is left out. ``model_args`` and ``method_args`` may be given as a
    mapping; they are kept as sorted pairs, so that a run is hashable and can be sent to a process.

    Args:
        experiment: name of the experiment it belongs to; a reduced budget has another name.
        dataset, model, method: entries of the tables in ``data``, ``models`` and ``methods``.
        model_args, method_args: their arguments beyond the defaults.
        optimizer: "sgd" or "adam"; ``momentum``, ``nesterov`` and ``weight_decay`` belong to it.
        restart_momentum: the optimizer's state starts again from zero when the rate changes.
        lr: learning rate at the start, ``schedule`` its course over the epochs.
        batch_size: effective batch, over all devices; an incomplete last batch is dropped.
        augment: entry of the table in ``augment``.
        precision: Lightning's name for it.
        seed: of the start, of the order of the samples, of augmentation and dropout.
        loss_limit: a run whose loss passes it has diverged.

    Raises:
        UserError: a field of a wrong type or outside its range.

    Example:
        >>> run = Run(
        ...     experiment="demo",
        ...     dataset="mnist-5k",
        ...     model="mlp",
        ...     method="OLM",
        ...     lr=0.2,
        ...     model_args={"hidden_layers": 8},
        ...     epochs=40,
        ...     batch_size=256,
        ... )
        >>> run.model_args
        (('hidden_layers', 8),)
        >>> Run.from_json(run.to_json()) == run
        True
        >>> run.id
        'OLM-mlp8-b256-lr0.2-s0-0b478e6b'
    """

    experiment: str
    dataset: str
    model: str
    model_args: Arguments | Mapping[str, Scalar] = ()
    method: str
    method_args: Arguments | Mapping[str, Scalar] = ()
    optimizer: str = "sgd"
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0
    restart_momentum: bool = False
    lr: float
    schedule: Schedule = Constant()
    epochs: int
    batch_size: int
    augment: str = "none"
    precision: str = "32-true"
    seed: int = 0
    loss_limit: float = 1000.0

    def __post_init__(self) -> None:
        for name in ("experiment", "dataset", "model", "method", "augment"):
            _check_name(name, getattr(self, name))
        for name in ("model_args", "method_args"):
            object.__setattr__(self, name, _pairs(name, getattr(self, name)))
        for name, low in (("momentum", 0.0), ("weight_decay", 0.0), ("lr", 0.0)):
            object.__setattr__(self, name, _number(name, getattr(self, name), low))
        object.__setattr__(self, "loss_limit", _number("loss_limit", self.loss_limit, 0.0))
        for name, low in (("epochs", 1), ("batch_size", 1), ("seed", 0)):
            _check_integer(name, getattr(self, name), low)
        for name in ("nesterov", "restart_momentum"):
            if not isinstance(getattr(self, name), bool):
                raise UserError(f"{name} is true or false, got {getattr(self, name)!r}")
        _check_choice("optimizer", self.optimizer, OPTIMIZERS)
        _check_choice("precision", self.precision, PRECISIONS)
        if not isinstance(self.schedule, tuple(SCHEDULES.values())):
            raise UserError(f"schedule is one of {', '.join(SCHEDULES)}, got {self.schedule!r}")

    @property
    def model_arguments(self) -> dict[str, Scalar]:
        """Arguments of the model as a dictionary."""
        return dict(self.model_args)

    @property
    def method_arguments(self) -> dict[str, Scalar]:
        """Arguments of the method as a dictionary."""
        return dict(self.method_args)

    @property
    def id(self) -> str:
        """Readable, safe as a file name, and unique: it ends in a hash of ``canonical()``."""
        digest = hashlib.sha256(self.canonical().encode()).hexdigest()[:8]
        numbers = "-".join(
            str(value) for _, value in self.model_args if isinstance(value, int) and not isinstance(value, bool)
        )
        readable = "-".join(
            (
                self.method,
                f"{self.model}{numbers}",
                f"b{self.batch_size}",
                f"lr{self.lr:g}",
                f"s{self.seed}",
            )
        )
        return f"{re.sub(r'[^A-Za-z0-9.+_-]', '_', readable)}-{digest}"

    def canonical(self) -> str:
        """One JSON text per run: sorted keys, and no field that is at its default.

        A field added later, with the behaviour of today as its default, thus leaves every id of
        today as it is.
        """
        defaults = {
            field.name: field.default for field in dataclasses.fields(self) if field.default is not dataclasses.MISSING
        }
        data = {
            name: value
            for name, value in self.to_json().items()
            if name not in defaults or getattr(self, name) != defaults[name]
        }
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)

    def to_json(self) -> dict[str, Any]:
        """All fields as JSON values."""
        data: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return data | {
            "model_args": self.model_arguments,
            "method_args": self.method_arguments,
            "schedule": schedule_to_json(self.schedule),
        }

    @classmethod
    def from_json(cls, data: Any) -> Run:
        """Run that ``to_json`` wrote.

        Raises:
            UserError: not an object, or a field unknown, missing or of a wrong type.
        """
        given = fields_from_json(cls, data, "run")
        if "schedule" in given:
            given["schedule"] = schedule_from_json(given["schedule"])
        for name in ("model_args", "method_args"):
            if name in given:
                given[name] = _pairs(name, given[name])
        return cls(**given)


def _check_name(name: str, value: object) -> None:
    # It becomes part of file names, and is shown on terminals and pages.
    if not isinstance(value, str) or value != value.strip() or not 1 <= len(value) <= 100 or not value.isprintable():
        raise UserError(f"{name} is a name of 1 to 100 printable characters, got {str(value)[:101]!r}")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UserError(f"{name} is one of {', '.join(choices)}, got {value!r}")


def _check_integer(name: str, value: Any, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise UserError(f"{name} is a whole number >= {low}, got {value!r}")


def _number(name: str, value: Any, low: float) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < low:
        raise UserError(f"{name} is a finite number >= {low:g}, got {value!r}")
    return float(value)


def _pairs(name: str, value: Any) -> Arguments:
    try:
        pairs = dict(value)
    except (TypeError, ValueError):
        raise UserError(f"{name} is a mapping of names to values, got {value!r}") from None
    for key, item in pairs.items():
        finite = not isinstance(item, float) or math.isfinite(item)
        if not isinstance(key, str) or not isinstance(item, (str, int, float, bool)) or not finite:
            raise UserError(f"{name} maps names to texts, finite numbers or true/false, got {key!r}: {item!r}")
    return tuple(sorted(pairs.items()))
