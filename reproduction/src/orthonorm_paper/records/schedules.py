"""Learning-rate schedules as small data, and the learning rate they give: a pure function of the epoch."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, Literal

from pydantic import Field

from .checked import Positive, Whole, checked

Factor = Annotated[float, Field(strict=True, gt=0, le=1, allow_inf_nan=False)]


@checked()
class Constant:
    """The learning rate stays as it is: factor 1."""

    kind: Literal["constant"] = field(default="constant", kw_only=True, repr=False)

    def factor(self, epoch: int) -> float:
        """1 for every epoch."""
        return 1.0


@checked()
class Halve:
    """Half the learning rate every ``every`` epochs: factor ``2^-(epoch // every)``."""

    kind: Literal["halve"] = field(default="halve", kw_only=True, repr=False)
    every: Positive

    def factor(self, epoch: int) -> float:
        """Factor in the epoch numbered from 0."""
        return 0.5 ** (epoch // self.every)


@checked()
class Exponential:
    """Towards ``final`` over ``epochs``, in steps of ``every``: ``final^(k / epochs)``.

    ``k = every * ((epoch + ahead) // every)`` counts the finished steps. ``ahead=1`` lets the first
    epoch begin one step down, as the ImageNet schedule ``0.1 * 100^(-e/50)``, e from 1, does.
    """

    kind: Literal["exponential"] = field(default="exponential", kw_only=True, repr=False)
    final: Factor
    epochs: Positive
    every: Positive = 1
    ahead: Whole = 0

    def factor(self, epoch: int) -> float:
        """Factor in the epoch numbered from 0."""
        steps = self.every * ((epoch + self.ahead) // self.every)
        return self.final ** (steps / self.epochs)


@checked()
class Steps:
    """Times ``by`` at each milestone: factor ``by^(milestones passed)``."""

    kind: Literal["steps"] = field(default="steps", kw_only=True, repr=False)
    milestones: Annotated[tuple[Positive, ...], Field(min_length=1)]
    by: Factor

    def __post_init__(self) -> None:
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones must be epochs in rising order; got {self.milestones}.")

    def factor(self, epoch: int) -> float:
        """Factor in the epoch numbered from 0."""
        return self.by ** sum(epoch >= milestone for milestone in self.milestones)


Schedule = Annotated[Constant | Halve | Exponential | Steps, Field(discriminator="kind")]


def rate(schedule: Schedule, lr: float, epoch: int) -> float:
    """Learning rate in an epoch numbered from 0: ``lr * schedule.factor(epoch)``.

    Examples:
        >>> [rate(Halve(40), 0.1, epoch) for epoch in (0, 39, 40, 80)]
        [0.1, 0.1, 0.05, 0.025]
    """
    return lr * schedule.factor(epoch)


def scaled(schedule: Schedule, epochs: int, before: int) -> Schedule:
    """The schedule over ``epochs`` that this one is over ``before``, to whole epochs and at least one.

    Examples:
        >>> scaled(Halve(20), 10, 40), scaled(Steps((60, 120), 0.2), 20, 200), scaled(Constant(), 10, 40)
        (Halve(every=5), Steps(milestones=(6, 12), by=0.2), Constant())
    """

    def length(number: int) -> int:
        return max(1, round(number * epochs / before))

    match schedule:
        case Constant():
            return schedule
        case Halve(every):
            return Halve(length(every))
        case Exponential(final, whole, every, ahead):
            return Exponential(final, length(whole), min(every, length(whole)), ahead)
        case Steps(milestones, by):
            return Steps(tuple(sorted({length(milestone) for milestone in milestones})), by)


def describe(schedule: Schedule) -> str:
    """The schedule in words, for reports.

    Examples:
        >>> describe(Halve(20))
        'learning rate halved every 20 epochs'
    """
    match schedule:
        case Constant():
            return "constant learning rate"
        case Halve(every):
            return f"learning rate halved every {'epoch' if every == 1 else f'{every} epochs'}"
        case Exponential(final, epochs, every):
            return f"learning rate to {final:g} of itself over {epochs} epochs in steps of {every}"
        case Steps(milestones, by):
            return f"learning rate times {by:g} at epochs {', '.join(map(str, milestones))}"
