"""What modules need besides that read their weights on the side, or often: recurrent ones, attention and stacks."""

from collections.abc import Callable
from functools import wraps
from typing import Any
from weakref import ref

import torch
from torch import nn

from ._orthogonal_weights import orthogonal_weights
from .caching._cached import cached

__all__ = ["adapt", "read_once", "restore"]

# Note [modules that read a weight more than once]
# nn.MultiheadAttention reads `in_proj_weight` up to three times a forward (to see whether its fast path may run, and to
# run it), a module of experts its whole stack once an expert, and a recurrent module keeps a list `_flat_weights` of
# the tensors that were its parameters. The first two would compute the weight as often, the third goes on with V, or
# computes W for each look at the list, depending on torch's version. So the class that `parametrize` has made for the
# module gets a forward that runs torch's inside `cached`, and, for a recurrent module, a list that is read from the
# attributes. `flatten_parameters` has nothing to flatten then: W is made at each forward. (On CUDA cuDNN says once more
# that the weights are compacted at every call.)
#
# torch's `remove_parametrizations` puts the class back, and nothing else. For that the module's own list and its
# references, out of sight under the property, are such that torch's class finds them out of date and makes them again.
#
# torch's recurrent `__setattr__` reads the list at each assignment of a weight, which would compute W in the middle of
# what assigns several (`fully_shard` does, one at a time). Ours needs no update, so assigning is that of nn.Module.


def adapt(module: nn.Module) -> None:
    """Make a parametrized module's own shortcuts see the orthogonal weight; other types are left as they are."""
    cls: Any = type(module)
    if isinstance(module, nn.RNNBase):
        cls._flat_weights = property(_read_flat_weights, _keep_flat_weights)
        cls._update_flat_weights = cls.flatten_parameters = _nothing_to_flatten
        cls._init_flat_weights = _outdate
        _outdate(module)
        if cls.__setattr__ is nn.RNNBase.__setattr__:
            cls.__setattr__ = nn.Module.__setattr__
    if isinstance(module, nn.RNNBase | nn.MultiheadAttention):
        read_once(module)


def read_once(module: nn.Module) -> None:
    """Let a parametrized module's forward compute each of its orthogonal weights once, however often it reads them."""
    cls: Any = type(module)
    if "forward" not in cls.__dict__:  # the second weight of a module finds what the first has made
        cls.forward = _reading_once(cls.forward)


def restore(module: nn.Module) -> None:
    """Give a module that is plain again what `adapt` took from it."""
    if isinstance(module, nn.RNNBase):
        module._init_flat_weights()


def _reading_once(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Return a module's forward that makes each orthogonal weight at its first read and keeps it to the end."""

    @wraps(forward)
    def _forward_once(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not any(True for _ in orthogonal_weights(self)):
            return forward(self, *args, **kwargs)
        with cached(self):
            return forward(self, *args, **kwargs)

    return _forward_once


def _outdate(self: nn.RNNBase) -> None:
    """Leave a list and references that torch's own class, once it is back, makes again before its next forward."""
    names = self._flat_weights_names
    self.__dict__["_flat_weights"] = [None] * len(names)
    self._flat_weight_refs = [ref(nn.Parameter(torch.empty(0))) for _ in names]  # to nothing any more


def _read_flat_weights(self: nn.RNNBase) -> list[Any]:
    return [getattr(self, name, None) for name in self._flat_weights_names]


def _keep_flat_weights(self: nn.RNNBase, value: Any) -> None:
    """Ignore what torch writes: the list is read from the attributes."""


def _nothing_to_flatten(self: nn.RNNBase) -> None:
    """Do nothing: the weights are made at each forward."""
