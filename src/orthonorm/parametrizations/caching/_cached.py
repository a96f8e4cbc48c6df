"""Each orthogonal weight computed once inside a context or a call, and all weights of a network in few calls."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from orthonorm.parametrizations._orthogonal_weights import orthogonal_weights, unconstrained

from ._cache import ACTIVE, Cache, close_caches, fill, open_cache
from ._optimizer_steps import watch_steps

__all__ = ["cached", "register_cached"]

# Note [calls that end without a word]
# torch runs no forward hook after a KeyboardInterrupt or SystemExit, so a registered call that ends by one leaves its
# cache among the active ones. Such a cache is known by the frame of its call, which is no longer on the stack.


@contextmanager
def cached(model: nn.Module) -> Iterator[None]:
    """Compute each orthogonal weight of the model once inside, all layers together, however often it is read.

    Outside of this context a weight is computed at each read. Use it around a step that runs a module several times: a
    recurrent cell, tied weights, two losses on one network. Gradients add up as without it. What was computed inside
    belongs to one graph, so call `backward` once inside (or with `retain_graph=True`), and step the optimizer outside.

    The weights are computed on entering, those of all layers in few operator calls. A layer that is not run inside then
    has a gradient of zero, not None.

    Args:
        model: a module with orthogonal weights.

    Yields:
        Nothing. Other threads, compiled code and `torch.func` transforms go on as if it were not there.

    Raises:
        TypeError: if `model` is not a module.
        ValueError: if the model has no orthogonal weight.
        RuntimeError: at a read inside, if V, the scale or the weight itself was changed since the first read. A write
            through `.data` is not seen.

    Examples:
        >>> import torch, orthonorm as on
        >>> layer = on.OrthogonalLinear(8, 4)
        >>> with on.cached(layer):
        ...     layer.weight is layer.weight
        True
    """
    owners = _weights_to_keep(model)
    cache = Cache({id(owner): name for name, owner, _ in owners})
    watch_steps()
    _fill_the_rest(cache, owners)
    open_cache(cache)
    try:
        yield
    finally:
        close_caches(cache)


def register_cached(model: nn.Module) -> RemovableHandle:
    """Run every call of the model inside `cached` from now on.

    For networks of many small layers, whose time goes into operator calls. Nothing outlives a call but its own graph.
    A model that is compiled, or folded, runs as if it had not been registered. Activation checkpointing computes the
    weights of a segment again outside of the call, which torch refuses with an error: use one or the other.

    The weights of a call are one graph. Sum several losses before the backward pass, or pass `retain_graph=True`. A
    layer that the call computes and the loss does not use gets a gradient of zero instead of None, so momentum and
    weight decay still move its parameters. Register the parts that have losses of their own, each by itself, instead.

    Args:
        model: a module with orthogonal weights, the one that is called.

    Returns:
        A handle whose `remove()` ends it, for a call in progress too if that is in the same thread.

    Raises:
        TypeError: if `model` is not a module.
        ValueError: if the model has no orthogonal weight.

    Examples:
        >>> import torch, orthonorm as on
        >>> model = torch.nn.Sequential(on.OrthogonalLinear(8, 4), on.OrthogonalLinear(4, 2))
        >>> handle = on.register_cached(model)
        >>> model(torch.zeros(1, 8)).shape
        torch.Size([1, 2])
        >>> handle.remove()
    """
    _weights_to_keep(model)
    watch_steps()
    before = model.register_forward_pre_hook(_enter)
    after = model.register_forward_hook(_leave, always_call=True)
    return _Handles(model, before, after)


class _Handles(RemovableHandle):
    def __init__(self, model: nn.Module, *handles: RemovableHandle) -> None:
        self.model, self.handles = model, handles

    # A copy of a model that holds its handle has a handle of its own.
    def __getstate__(self) -> tuple[nn.Module, tuple[RemovableHandle, ...]]:  # type: ignore[override]
        return self.model, self.handles

    def __setstate__(self, state: tuple[nn.Module, tuple[RemovableHandle, ...]]) -> None:  # type: ignore[override]
        self.model, self.handles = state

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()
        # torch does not run a hook that was removed meanwhile, so calls in progress end their contexts here.
        while any(cache.model is self.model for cache in ACTIVE.get()):
            _leave(self.model, None, None)


def _enter(model: nn.Module, _args: Any) -> None:
    if torch.compiler.is_compiling():
        return
    frame = _frame_of_call(model)
    # A call of the same id is one that ended, whose frame has made room for this one.
    ended = (c for c in ACTIVE.get() if not c.is_running() or (c.call is not None and c.call == frame))
    close_caches(*ended)
    owners = _owners(model)
    names = {id(owner): name for name, owner, _ in owners}
    cache = Cache(names, model, frame, partial(_is_on_stack, frame, model))
    _fill_the_rest(cache, owners)
    open_cache(cache)


def _fill_the_rest(cache: Cache, owners: list[tuple[str, Any, Tensor]]) -> None:
    """Compute the weights of all owners at once, but for what is kept already by a context around this one."""
    fill(cache, [entry for entry in owners if not any(other.serves(entry[1]) for other in ACTIVE.get())])


def _leave(model: nn.Module, _args: Any, _output: Any) -> None:
    if torch.compiler.is_compiling():
        return
    # torch runs this hook too where another one failed before `_enter`: then no call of this model is there to end.
    # A call inside this one is there still if its handle was removed meanwhile: it ends with this one.
    caches = ACTIVE.get()
    place = max((i for i, cache in enumerate(caches) if cache.model is model), default=len(caches))
    close_caches(*(cache for cache in caches[place:] if cache.model is not None))


def _weights_to_keep(model: nn.Module) -> list[tuple[str, Any, Tensor]]:
    owners = _owners(model)
    if not owners:
        raise ValueError(f"this {type(model).__name__} has no orthogonal weight to cache. Call orthogonalize_ first.")
    return owners


def _owners(model: nn.Module) -> list[tuple[str, Any, Tensor]]:
    """Return the name, the parametrization and V of each orthogonal weight."""
    return [(key, owner, unconstrained(module, name)) for key, module, name, owner in orthogonal_weights(model)]


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _frame_of_call(model: nn.Module) -> int | None:
    """Return the id of the frame of the innermost call of a model; None where its class calls it in another way."""
    return next((id(frame) for frame in _callers() if _is_call(frame, model)), None)


def _is_on_stack(frame: int | None, model: nn.Module) -> bool:
    """Return whether a call has not ended: Note [calls that end without a word]."""
    return frame is None or any(id(caller) == frame and _is_call(caller, model) for caller in _callers())


def _is_call(frame: FrameType, model: nn.Module) -> bool:
    return frame.f_code is nn.Module._call_impl.__code__ and frame.f_locals.get("self") is model
