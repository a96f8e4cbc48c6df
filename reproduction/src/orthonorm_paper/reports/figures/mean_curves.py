"""Curves over the epochs, their mean over the seeds, and when one reaches a value."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from orthonorm_paper.records.files import Record


def curve(record: Record, field: str) -> list[float]:
    """A field of each epoch; NaN where it was not finite."""
    values = (getattr(line, field) for line in record.epochs)
    return [math.nan if value is None else value for value in values]


def mean_curve(records: Sequence[Record], field: str) -> list[float]:
    """Mean over the records of a field in each epoch, over those that came so far.

    Examples:
        >>> from orthonorm_paper.records.files import End, Epoch, Header
        >>> epochs = [Epoch.model_construct(test_error=error) for error in (90.0, 40.0, 70.0)]
        >>> parts = (tuple(epochs[:2]), tuple(epochs[2:]))
        >>> mean_curve([Record(Header.model_construct(), part, End.model_construct()) for part in parts], "test_error")
        [80.0, 40.0]
    """
    curves = [curve(record, field) for record in records]
    length = max(map(len, curves), default=0)
    return [statistics.fmean(values[i] for values in curves if i < len(values)) for i in range(length)]


def epoch_reached(values: Sequence[float], target: float) -> int | None:
    """First epoch, numbered from 1, whose value is at most the target; None if there is none.

    Examples:
        >>> epoch_reached([80.0, 30.0, 10.0], 30.0)
        2
    """
    return next((epoch for epoch, value in enumerate(values, 1) if value <= target), None)


def epochs_to(values: Sequence[float], target: float) -> float:
    """Epochs until the value is at most the target, by linear interpolation between epochs; infinite if it never is.

    Nothing is known before the end of the first epoch, which counts as a whole one.

    Examples:
        >>> epochs_to([80.0, 40.0, 10.0], 30.0), epochs_to([80.0], 30.0)
        (2.3333333333333335, inf)
    """
    epoch = epoch_reached(values, target)
    if epoch is None or epoch == 1:
        return math.inf if epoch is None else 1.0
    before, after = values[epoch - 2], values[epoch - 1]
    # After a value that was not finite there is nothing to interpolate from.
    return float(epoch) if math.isnan(before) else epoch - 1 + (before - target) / (before - after)
