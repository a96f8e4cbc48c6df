"""Learning-rate schedules as small data, and the rate they give: a pure function of the epoch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar

from orthonorm_paper.exceptions import UserError

from .json_fields import fields_from_json


def _positive_integer(schedule: object, name: str) -> None:
    value = getattr(schedule, name)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{name} of a schedule is a whole number of epochs >= 1, got {value!r}")


def _factor(schedule: object, name: str) -> None:
    value = getattr(schedule, name)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= 1:
        raise UserError(f"{name} of a schedule is a factor in (0, 1], got {value!r}")
    object.__setattr__(schedule, name, float(value))


@dataclass(frozen=True)
class Constant:
    """The rate stays as it is: factor 1."""

    kind: ClassVar[str] = "constant"

    def factor(self, epoch: int) -> float:
        """1 for every epoch."""
        return 1.0


@dataclass(frozen=True)
class Halve:
    """Half the rate every ``every`` epochs: factor ``2^-(epoch // every)``."""

    every: int
    kind: ClassVar[str] = "halve"

    def __post_init__(self) -> None:
        _positive_integer(self, "every")

    def factor(self, epoch: int) -> float:
        """Factor in the epoch numbered from 0."""
        return 0.5 ** (epoch // self.every)


@dataclass(frozen=True)
class Exponential:
    """Towards ``final`` over ``epochs``, in steps of ``every``: ``final^(k / epochs)``.

    ``k = every * ((epoch + ahead) // every)`` counts the finished steps. ``ahead=1`` lets the first
    epoch begin one step down, as the ImageNet schedule ``0.1 * 100^(-e/50)``, e from 1, does.
    """

    final: float
    epochs: int
    every: int = 1
    ahead: int = 0
    kind: ClassVar[str] = "exponential"

    def __post_init__(self) -> None:
        _factor(self, "final")
        _positive_integer(self, "epochs")
        _positive_integer(self, "every")
        if isinstance(self.ahead, bool) or not isinstance(self.ahead, int) or self.ahead < 0:
            raise UserError(f"ahead is a whole number of epochs >= 0, got {self.ahead!r}")

    def factor(self, epoch: int) -> float:
        """Factor in the epoch numbered from 0."""
        steps = self.every * ((epoch + self.ahead) // self.every)
        return self.final ** (steps / self.epochs)


@dataclass(frozen=True)
class Steps:
    """Times ``by`` at each milestone: factor ``by^(milestones passed)``."""

    milestones: tuple[int, ...]
    by: float
    kind: ClassVar[str] = "steps"

    def __post_init__(self) -> None:
        object.__setattr__(self, "milestones", tuple(self.milestones))
        _factor(self, "by")
        integers = all(isinstance(m, int) and not isinstance(m, bool) for m in self.milestones)
        rising = integers and all(a < b for a, b in zip((0, *self.milestones), self.milestones, strict=False))
        if not self.milestones or not rising:
            raise UserError(f"milestones are epochs in rising order, the first >= 1, got {self.milestones!r}")

    def factor(self, epoch: int) -> float:
        """Factor in the epoch numbered from 0."""
        return self.by ** sum(epoch >= milestone for milestone in self.milestones)


Schedule = Constant | Halve | Exponential | Steps
SCHEDULES: dict[str, type[Schedule]] = {kind.kind: kind for kind in (Constant, Halve, Exponential, Steps)}


def rate(schedule: Schedule, lr: float, epoch: int) -> float:
    """Learning rate in an epoch numbered from 0: ``lr * schedule.factor(epoch)``.

    Example:
        >>> [rate(Halve(40), 0.1, epoch) for epoch in (0, 39, 40, 80)]
        [0.1, 0.1, 0.05, 0.025]
    """
    return lr * schedule.factor(epoch)


def schedule_to_json(schedule: Schedule) -> dict[str, Any]:
    """Dictionary of JSON values, with the kind beside the fields."""
    fields = dataclasses.asdict(schedule)
    return {"kind": schedule.kind} | {
        name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()
    }


def schedule_from_json(data: Any) -> Schedule:
    """Schedule that ``schedule_to_json`` wrote; a wrong kind or field is a ``UserError``.

    Example:
        >>> schedule_from_json({"kind": "steps", "milestones": [60, 120, 160], "by": 0.2})
        Steps(milestones=(60, 120, 160), by=0.2)
    """
    if not isinstance(data, dict) or data.get("kind") not in SCHEDULES:
        raise UserError(f"a schedule has a kind, one of {', '.join(SCHEDULES)}; got {data!r}")
    kind = SCHEDULES[data["kind"]]
    given = {name: value for name, value in data.items() if name != "kind"}
    return kind(**fields_from_json(kind, given, f"schedule {kind.kind}"))


def describe(schedule: Schedule) -> str:
    """The schedule in words, for reports.

    Example:
        >>> describe(Halve(20))
        'rate halved every 20 epochs'
    """
    match schedule:
        case Constant():
            return "constant rate"
        case Halve(every):
            return "rate halved every epoch" if every == 1 else f"rate halved every {every} epochs"
        case Exponential(final, epochs, every):
            return f"rate to {final:g} of itself over {epochs} epochs in steps of {every}"
        case Steps(milestones, by):
            return f"rate times {by:g} at epochs {', '.join(map(str, milestones))}"
