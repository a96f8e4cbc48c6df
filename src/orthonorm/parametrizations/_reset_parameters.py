"""Re-initialisation of a module with orthogonal weights by the methods of its own class."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ._without_values import stop_waiting
from .caching._cache import write_count

__all__ = ["adapt_resets"]

# Note [initialisation of a weight that is computed]
# A class's own method writes into `self.weight`, which is a result here. While it runs, each read of this module gives
# one and the same tensor, and what it holds afterwards tells what was written: in place, through `.data` (which counts
# no version), or as other memory. A recurrent layer writes into all its parameters, V and the scale themselves among
# them. torch's `parametrize.cached` would do as much for all modules of the process, those of other threads included.


def adapt_resets(module: nn.Module) -> None:
    """Make what a parametrized module's class writes into its weights, when it resets them, the new V."""
    for method, reset in _RESETS.items():
        if callable(getattr(module, method, None)):
            setattr(type(module), method, reset)


def _resetting(method: str) -> Callable[..., Any]:
    def _reset(module: nn.Module, *args: Any, **options: Any) -> Any:
        with torch.no_grad():
            lists = dict(module.parametrizations.items())  # type: ignore[union-attr, operator]
            for entry in lists.values():
                stop_waiting(entry[0])
            weights = {name: _Watched(entry()) for name, entry in lists.items()}
            free = {name: _Watched(entry.original) for name, entry in lists.items() if entry.is_tensor}
            with _read_as(module, {name: watched.tensor for name, watched in weights.items()}):
                result = getattr(_class_below(module, method), method)(module, *args, **options)
            written = {name: watched.copy() for name, watched in weights.items() if watched.was_written()}
            written |= {name: watched.copy() for name, watched in free.items() if watched.was_written()}
        for name, weight in written.items():
            setattr(module, name, weight)
        return result

    return _reset


@contextmanager
def _read_as(module: nn.Module, tensors: dict[str, Tensor]) -> Iterator[None]:
    """Let a module's parametrized tensors be read as the given ones; it has a class of its own, or shares a copy's."""
    cls = type(module)
    before = {name: vars(cls)[name] for name in tensors}
    for name, tensor in tensors.items():
        setattr(cls, name, _reading(module, tensor, before[name]))
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(cls, name, value)


def _reading(module: nn.Module, tensor: Tensor, usual: property) -> property:
    assert usual.fget is not None
    get = usual.fget
    return property(lambda self: tensor if self is module else get(self), usual.fset)


# Attention keeps its own under the second name.
_RESETS = {method: _resetting(method) for method in ("reset_parameters", "_reset_parameters")}


class _Watched:
    """A tensor, and whether a method has written into it since."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.version, self.before = tensor, write_count(tensor), tensor.detach().clone()

    def was_written(self) -> bool:
        now = self.tensor.detach()
        if (self.version, now.shape, now.device) != (write_count(self.tensor), self.before.shape, self.before.device):
            return True
        return not (now.is_meta or bool(torch.isclose(now, self.before, rtol=0, atol=0, equal_nan=True).all()))

    def copy(self) -> Tensor:
        return self.tensor.detach().clone()


def _class_below(module: nn.Module, method: str) -> type:
    """Return the class under the one that carries our method, which others may have derived from."""
    classes = type(module).__mro__
    ours = next(i for i, cls in enumerate(classes) if cls.__dict__.get(method) is _RESETS[method])
    return classes[ours + 1]
