"""The health of a model's orthogonal weights while it trains: numbers for a logger, a warning with the layer's name."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

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


class OrthogonalityWarning(UserWarning):
    """A layer's group of rows has lost rank or is not finite."""


def weight_metrics(model: nn.Module) -> dict[str, float]:
    """Return what `inspect` measures of every orthogonal weight, under names for a logger.

    Args:
        model: a module with orthogonal weights.

    Returns:
        `{"orthogonality_error/0.weight": ..., "condition_number/0.weight": ..., "v_norm/0.weight": ...,
        "w_norm/0.weight": ..., ...}`.

    Raises:
        TypeError, ValueError: as `inspect`.

    Example:
        >>> import torch, orthonorm as on
        >>> list(on.weight_metrics(torch.nn.Sequential(on.OrthogonalLinear(8, 4))))
        ['orthogonality_error/0.weight', 'condition_number/0.weight', 'v_norm/0.weight', 'w_norm/0.weight']

    Source: the quantities of `inspect`.
    """
    return _metrics(inspect(model).layers)


def weight_problems(model: nn.Module) -> list[str]:
    """Return a sentence for each orthogonal weight that has lost rank or is not finite; none for a healthy model.

    Rank counts as lost where the condition number of V in a group exceeds 2e6, from where on W loses a direction, or
    where the error exceeds 0.1.

    Args:
        model: a module with orthogonal weights.

    Raises:
        TypeError, ValueError: as `inspect`.

    Example:
        >>> import torch, orthonorm as on
        >>> layer = torch.nn.Sequential(on.OrthogonalLinear(8, 4))
        >>> layer[0].parametrizations.weight.original.data[1] = 0
        >>> on.weight_problems(layer)[0].partition(":")[0]
        '0.weight has lost rank'

    Source: decision 6 of the library: the forward never looks at values, the diagnostics do.
    """
    return _problems(inspect(model).layers)


class OrthogonalityHook:
    """Logs the metrics of a model's orthogonal weights every so many steps, and warns of a layer that broke.

    `attach` it to an optimizer, or call it after each step. It needs no framework: `log` is any function of a name, a
    number and a step, such as `torch.utils.tensorboard.SummaryWriter(...).add_scalar`.

    Args:
        model: a module with orthogonal weights.
        log: `(name, value, step) -> None`; None to warn only.
        every: steps between two looks. A look costs about one decomposition of each weight.

    Raises:
        TypeError, ValueError: as `inspect`; a ValueError if `every` is not positive, too.

    Example:
        >>> import torch, orthonorm as on
        >>> model, seen = on.OrthogonalLinear(8, 4), []
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> handle = on.OrthogonalityHook(model, lambda *entry: seen.append(entry[0]), every=1).attach(optimizer)
        >>> optimizer.step()
        >>> seen
        ['orthogonality_error/weight', 'condition_number/weight', 'v_norm/weight', 'w_norm/weight']

    Source: `weight_metrics` and `weight_problems`.
    """

    def __init__(
        self, model: nn.Module, log: Callable[[str, float, int], Any] | None = None, *, every: int = 100
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 step; got {every}.")
        inspect(model)
        self.model: nn.Module = model
        self.log: Callable[[str, float, int], Any] | None = log
        self.every: int = every
        self.step: int = 0

    def __call__(self) -> None:
        """Count one step, and look where the count is a multiple of `every`."""
        self.step += 1
        if self.step % self.every == 0:
            self.look(self.step)

    def look(self, step: int) -> None:
        """Log the metrics under this step now, and warn of every layer that broke."""
        layers = inspect(self.model).layers
        if self.log is not None:
            for name, value in _metrics(layers).items():
                self.log(name, value, step)
        for problem in _problems(layers):
            warnings.warn(f"step {step}: {problem}", OrthogonalityWarning, stacklevel=2)

    def attach(self, optimizer: Optimizer) -> RemovableHandle:
        """Call this hook after each step of the optimizer; the handle's `remove()` ends that."""
        return optimizer.register_step_post_hook(lambda *_: self())


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


def _problems(layers: tuple[LayerReport, ...]) -> list[str]:
    return [text for layer in layers if (text := _problem(layer))]


def _problem(layer: LayerReport) -> str:
    if not (math.isfinite(layer.error) and math.isfinite(layer.v_norm)):
        return (
            f"{layer.weight} is not finite: V holds NaN or infinity, and so does its group of W. Look at the loss and "
            "the gradients of the step before, then load the last checkpoint."
        )
    if layer.condition_number > _LOST_CONDITION or layer.error > _LOST_ERROR:
        return (
            f"{layer.weight} has lost rank: rows of V in one group became dependent (condition number "
            f"{layer.condition_number:.1g}, error {layer.error:.2g}). Lower the learning rate, or call renormalize_, which "
            "completes the lost directions."
        )
    return ""
