"""The health of a model's orthogonal weights while it trains: numbers for a logger, a warning with the layer's name."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from orthonorm.convert._innermost_optimizer import innermost_optimizer
from orthonorm.functional._methods import relative_floor

from ._inspection import LayerReport, inspect

__all__ = ["OrthogonalityHook", "OrthogonalityWarning", "weight_metrics", "weight_problems"]

# Note [when a direction counts as lost]
# The error alone does not tell: of a lost direction u of n rows the largest entry of |W W^T - I| is max u_i^2, which
# may be as low as 1/n, and the rounding of bfloat16 makes errors up to 2^-7 in a healthy weight. The condition number
# of V does: beyond the relative floor of its Gram matrix (Note [the relative floor]) the transformation itself lets
# directions fade, whatever the dtype and n, and renormalize_ completes them. A device without float64 has a higher
# floor, which the error shows.
_LOST_CONDITION = relative_floor(torch.float64) ** -0.5
_LOST_ERROR = 0.1

# Note [when a weight counts as stopped]
# The effective learning rate of W is lr / |V|^2 with SGD and lr / |V| with Adam. Rows of usual weights have norms of
# 0.1 to 30 (a standard normal row of 768 entries has 28). At 100, SGD moves W at 1e-4 of lr and Adam at 1e-2, which no
# schedule of a learning rate means. What watches a training also knows |V| as it was at first: where it has grown
# thirtyfold, SGD moves W at a thousandth of its first speed.
_LARGE_NORM = 100.0
_GROWTH = 30.0


class OrthogonalityWarning(UserWarning):
    """A weight has lost rank, is not finite, or has all but stopped since V has grown."""


def weight_metrics(model: nn.Module) -> dict[str, float]:
    """Return what `inspect` measures of every orthogonal weight, under names for a logger.

    Args:
        model: a module with orthogonal weights.

    Returns:
        The numbers by name, as `orthogonality_error/0.weight`, `condition_number/0.weight`, `v_norm/0.weight` and
        `w_norm/0.weight`.

    Raises:
        TypeError, ValueError: as `inspect`.

    Examples:
        >>> import torch, orthonorm as on
        >>> list(on.weight_metrics(torch.nn.Sequential(on.OrthogonalLinear(8, 4))))
        ['orthogonality_error/0.weight', 'condition_number/0.weight', 'v_norm/0.weight', 'w_norm/0.weight']
    """
    return _metrics(inspect(model).layers)


def weight_problems(model: nn.Module) -> list[str]:
    """Return what is wrong with a model's orthogonal weights, by name and with the cure; nothing for a healthy model.

    A weight is reported for one of four reasons. It is not finite. It has lost rank: the condition number of V in a
    group exceeds 2e6, beyond which W loses a direction. Its orthogonality error exceeds 0.1 although the condition
    number is lower, since products in float32 do not resolve the condition number. Or it has all but stopped:
    |V| (`v_norm` of `inspect`) exceeds 100, so that W moves at less than 1e-4 of the learning rate with SGD, and 1e-2
    with Adam.

    Args:
        model: a module with orthogonal weights.

    Returns:
        A text for each problem, which names the weight and the cure; an empty list for a healthy model.

    Raises:
        TypeError, ValueError: as `inspect`.

    Examples:
        >>> import torch, orthonorm as on
        >>> layer = torch.nn.Sequential(on.OrthogonalLinear(8, 4))
        >>> layer[0].parametrizations.weight.original.data[1] = 0
        >>> on.weight_problems(layer)[0].partition(":")[0]
        '0.weight has lost rank'
    """
    return _problems(inspect(model).layers)


class OrthogonalityHook:
    """Logs the metrics of a model's orthogonal weights every so many steps, and warns of what `weight_problems` finds.

    It also warns of a weight whose |V| has grown thirtyfold since this hook was made, so that W moves at a thousandth
    of its first speed with SGD. `attach` it to an optimizer, or call it after each step. It needs no framework: `log`
    is any function of a name, a number and a step, such as `torch.utils.tensorboard.SummaryWriter(...).add_scalar`.

    Args:
        model: a module with orthogonal weights.
        log: `(name, value, step) -> None`; None to warn only.
        every: steps between two looks. A look costs about one decomposition of each weight.

    Raises:
        TypeError, ValueError: as `inspect`; a ValueError if `every` is not positive, too.

    Examples:
        >>> import torch, orthonorm as on
        >>> model, seen = on.OrthogonalLinear(8, 4), []
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> handle = on.OrthogonalityHook(model, lambda *entry: seen.append(entry[0]), every=1).attach(optimizer)
        >>> optimizer.step()
        >>> seen
        ['orthogonality_error/weight', 'condition_number/weight', 'v_norm/weight', 'w_norm/weight']
    """

    def __init__(
        self, model: nn.Module, log: Callable[[str, float, int], Any] | None = None, *, every: int = 100
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 step; got {every}.")
        self.model: nn.Module = model
        self._first: dict[str, float] = {layer.weight: layer.v_norm for layer in inspect(model).layers}
        self.log: Callable[[str, float, int], Any] | None = log
        self.every: int = every
        self.step: int = 0

    def __call__(self) -> None:
        """Count one step, and look where the count is a multiple of `every`."""
        self.step += 1
        if self.step % self.every == 0:
            self.look(self.step)

    def look(self, step: int) -> None:
        """Log the metrics under this step now, and warn of every weight with a problem."""
        layers = inspect(self.model).layers
        if self.log is not None:
            for name, value in _metrics(layers).items():
                self.log(name, value, step)
        for problem in _problems(layers, self._first):
            warnings.warn(f"step {step}: {problem}", OrthogonalityWarning, stacklevel=2)

    def attach(self, optimizer: Optimizer) -> RemovableHandle:
        """Call this hook after each step of the optimizer; the handle's `remove()` ends that."""
        return innermost_optimizer(optimizer).register_step_post_hook(lambda *_: self())


def _metrics(layers: tuple[LayerReport, ...]) -> dict[str, float]:
    return {
        f"{name}/{layer.weight}": value
        for layer in layers
        for name, value in (
            ("orthogonality_error", layer.error),
            ("condition_number", layer.condition_number),
            ("v_norm", layer.v_norm),
            ("w_norm", layer.w_norm),
        )
    }


def _problems(layers: tuple[LayerReport, ...], first: Mapping[str, float] | None = None) -> list[str]:
    """Return what is wrong with each weight; `first` are the norms of V that growth is measured from."""
    return [text for layer in layers for text in _problems_of(layer, (first or {}).get(layer.weight, math.nan))]


def _problems_of(layer: LayerReport, first: float) -> Iterator[str]:
    if not (math.isfinite(layer.error) and math.isfinite(layer.v_norm)):
        yield (
            f"{layer.weight} is not finite: V holds NaN or infinity, and so does its group of W. Look at the loss and "
            "the gradients of the step before, then load the last checkpoint. A V that no loader has filled is NaN, "
            "too: load the file into the plain model, and convert that."
        )
        return
    if layer.error > _LOST_ERROR and layer.condition_number < _LOST_CONDITION:
        yield (
            f"{layer.weight} is not orthogonal (error {layer.error:.2g}): the condition number of V, "
            f"{layer.condition_number:.1g}, is beyond what matrix products in float32 resolve. Call renormalize_, "
            'which resets it, or convert with precision="float64".'
        )
    elif layer.condition_number > _LOST_CONDITION:
        yield (
            f"{layer.weight} has lost rank: rows of V in one group became dependent (condition number "
            f"{layer.condition_number:.1g}, error {layer.error:.2g}). Lower the learning rate, or call renormalize_, "
            "which completes the lost directions."
        )
    grown = layer.v_norm > _GROWTH * first > 0
    if layer.v_norm > _LARGE_NORM or grown:
        since = f", {layer.v_norm / first:.3g} times what it was at first" if grown else ""
        yield (
            f"{layer.weight} has all but stopped: |V| is {layer.v_norm:.3g}{since}, so W moves at lr / "
            f"{layer.v_norm**2:.2g} with SGD and at lr / {layer.v_norm:.2g} with Adam. Call renormalize_(model, "
            "norm=1.0), and lower the learning rate if it happens again."
        )
