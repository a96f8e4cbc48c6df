"""What the words mean that claims use of a run: stable, learns, at the edge of its learning rates."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from .cells import Cell, best, cells
from .files import COMPLETED, Record
from .run import Run
from .sequences import memoryless_loss

# Classes of each data set; its variants, as "mnist-5k", begin with the same word.
_CLASSES = {"mnist": 10, "cifar10": 10, "cifar100": 100, "pie": 68, "imagenet": 1000}
# A run that ends above this share of the loss of guessing has not learned.
LEARNED = 0.9
# A run that ends above this multiple of its own lowest loss has risen again.
RISEN = 2.0


def guessing_loss(dataset: str) -> float:
    """Loss of a uniform guess, the logarithm of the number of classes; on ``copying-T`` that of remembering nothing.

    Examples:
        >>> round(guessing_loss("mnist-5k-rgb"), 3), round(guessing_loss("copying-10"), 3)
        (2.303, 0.693)
    """
    return memoryless_loss(dataset) or math.log(_CLASSES[dataset.split("-")[0]])


def is_stable(record: Record) -> bool:
    """The run is finite, ends below 90% of the loss of guessing, and at most at twice its own lowest loss."""
    losses = [line.train_loss for line in record.epochs]
    finite = [loss for loss in losses if loss is not None]
    if record.outcome != COMPLETED or len(finite) < len(losses) or not finite:
        return False
    return finite[-1] < LEARNED * guessing_loss(record.run.dataset) and finite[-1] <= RISEN * min(finite)


def complete(tried: Iterable[Cell]) -> list[Cell]:
    """The cells that have every seed that any of them has: others cannot be compared with them."""
    tried = list(tried)
    seeds = {seed for cell in tried for seed in cell.seeds}
    return [cell for cell in tried if set(cell.seeds) == seeds]


def edges(records: Iterable[Record]) -> list[tuple[Run, str]]:
    """Each run's kind whose best learning rate is the lowest or the highest that it tried.

    The best has the lowest mean final training loss. Exempt are kinds with one learning rate, and those that never get
    below 90% of the loss of guessing, for which no wider grid is better.

    Returns:
        A run of the kind, at its best learning rate, and "lowest" or "highest".
    """
    kinds: dict[Run, list[Cell]] = {}
    for cell in cells(records):
        kinds.setdefault(dataclasses.replace(cell.run, lr=0.0), []).append(cell)
    found = []
    for tried in kinds.values():
        top = best(complete(tried), "train_loss")
        rates = sorted(cell.run.lr for cell in tried)
        if len(rates) < 2 or top is None or top.mean("train_loss") >= LEARNED * guessing_loss(top.run.dataset):
            continue
        if top.run.lr in (rates[0], rates[-1]):
            found.append((top.run, "lowest" if top.run.lr == rates[0] else "highest"))
    return found
