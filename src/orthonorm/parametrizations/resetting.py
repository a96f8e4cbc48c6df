"""Re-initialisation of a module with orthogonal weights by the methods of its own class."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from .weight_norm import OrthogonalWeightNorm

__all__ = ["adapt_resets"]

# Note [initialisation of a weight that is computed]
# A class's own method writes into `self.weight`, which is a result here. Inside torch's `cached` it is one tensor, and
# what it holds afterwards tells what was written: in place, through `.data` (which counts no version), or as other
# memory. A recurrent layer writes into all its parameters, V and the scale themselves among them.


def adapt_resets(module: nn.Module) -> None:
    """Make what a parametrized module's class writes into its weights, when it resets them, the new V."""
    for method, reset in _RESETS.items():
        if callable(getattr(module, method, None)):
            setattr(type(module), method, reset)


def _resetting(method: str) -> Callable[..., None]:
    def _reset(module: nn.Module, *args: Any, **options: Any) -> None:
        with torch.no_grad(), parametrize.cached():
            lists = dict(module.parametrizations.items())  # type: ignore[union-attr, operator]
            weights = {name: _Watched(getattr(module, name)) for name in lists}
            free = {name: _Watched(entry.original) for name, entry in lists.items() if entry.is_tensor}
            getattr(_class_below(module, method), method)(module, *args, **options)
            written = {name: watched.copy() for name, watched in weights.items() if watched.was_written()}
            written |= {name: watched.copy() for name, watched in free.items() if watched.was_written()}
        for name, weight in written.items():
            _start_from(module, name, weight)

    return _reset


# Attention keeps its own under the second name.
_RESETS = {method: _resetting(method) for method in ("reset_parameters", "_reset_parameters")}


class _Watched:
    """A tensor, and whether a method has written into it since."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.version, self.before = tensor, _version(tensor), tensor.detach().clone()

    def was_written(self) -> bool:
        now = self.tensor.detach()
        if (self.version, now.shape, now.device) != (_version(self.tensor), self.before.shape, self.before.device):
            return True
        return not (now.is_meta or bool(torch.isclose(now, self.before, rtol=0, atol=0, equal_nan=True).all()))

    def copy(self) -> Tensor:
        return self.tensor.detach().clone()


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _class_below(module: nn.Module, method: str) -> type:
    """Return the class under the one that carries our method, which others may have derived from."""
    classes = type(module).__mro__
    ours = next(i for i, cls in enumerate(classes) if cls.__dict__.get(method) is _RESETS[method])
    return classes[ours + 1]


def _start_from(module: nn.Module, name: str, weight: Tensor) -> None:
    setattr(module, name, weight)
    owner = getattr(module.parametrizations, name)[0]
    if isinstance(owner, OrthogonalWeightNorm) and owner.unit_start and isinstance(owner.scale, Tensor):
        nn.init.ones_(owner.scale)
