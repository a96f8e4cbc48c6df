"""`Run`: everything that decides a result, and nothing else."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, PlainSerializer, PlainValidator, TypeAdapter

from .checked import NotNegative, Positive, Switch, Whole, checked, in_one_line
from .schedules import Constant, Schedule

Scalar = str | int | float | bool
Arguments = tuple[tuple[str, Scalar], ...]
Optimizer = Literal["sgd", "adam"]
Precision = Literal["32-true", "64-true", "16-mixed", "bf16-mixed"]
PRECISIONS: tuple[str, ...] = get_args(Precision)


def _name(value: str) -> str:
    # It becomes part of file names, and is shown on terminals and pages.
    if value != value.strip() or not value.isprintable():
        raise ValueError(f"should be printable characters without spaces around them; got {value!r}.")
    return value


def _pairs(value: Any) -> Arguments:
    try:
        pairs = dict(value)
    except (TypeError, ValueError):
        raise ValueError(f"should be a mapping of names to values; got {value!r}.") from None
    for key, item in pairs.items():
        finite = not isinstance(item, float) or math.isfinite(item)
        if not isinstance(key, str) or not isinstance(item, (str, int, float, bool)) or not finite:
            raise ValueError(f"should map names to texts, finite numbers or true/false; got {key!r}: {item!r}.")
    return tuple(sorted(pairs.items()))


Name = Annotated[str, Field(strict=True, min_length=1, max_length=100), AfterValidator(_name)]
# Given as a mapping or as pairs, kept as sorted pairs, and an object in JSON.
Given = Annotated[Arguments | Mapping[str, Scalar], PlainValidator(_pairs), PlainSerializer(dict)]


@checked(kw_only=True)
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
        restart_momentum: the optimizer's state starts again from zero when the learning rate changes.
        lr: initial learning rate, ``schedule`` its course over the epochs.
        batch_size: effective batch, over all devices; an incomplete last batch is dropped.
        augment: entry of the table in ``augment``.
        precision: Lightning's name for it.
        seed: of the initialization, of the order of the samples, of augmentation and dropout.
        loss_limit: a run whose loss passes it has diverged.

    Raises:
        UserError: a field of a wrong type or outside its range.

    Examples:
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

    experiment: Name
    dataset: Name
    model: Name
    model_args: Given = ()
    method: Name
    method_args: Given = ()
    optimizer: Optimizer = "sgd"
    momentum: NotNegative = 0.0
    nesterov: Switch = False
    weight_decay: NotNegative = 0.0
    restart_momentum: Switch = False
    lr: NotNegative
    schedule: Schedule = Constant()
    epochs: Positive
    batch_size: Positive
    augment: Name = "none"
    precision: Precision = "32-true"
    seed: Whole = 0
    loss_limit: NotNegative = 1000.0

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
        return _RUN.dump_python(self, mode="json")

    @classmethod
    def from_json(cls, data: Any) -> Run:
        """Run that ``to_json`` wrote.

        Raises:
            UserError: not an object, or a field unknown, missing or of a wrong type.
        """
        return in_one_line("Run", lambda: _RUN.validate_python(data))


_RUN: TypeAdapter[Run] = TypeAdapter(Run)
