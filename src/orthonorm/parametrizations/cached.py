"""Each orthogonal weight computed once inside a context, and all weights of a network in few calls."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.utils.hooks import RemovableHandle

from orthonorm.functional.together import Rows, orthonormalize_together

__all__ = ["Owner", "cached", "look_up", "register_cached"]

# Note [what the cache may hold]
# A cached weight is right only for the V and the scale it was computed from, and only while they stay unchanged. So
# - an entry holds the tensors it came from, not their ids alone, and is used for exactly these. Whatever stands in for
#   V elsewhere (a tensor of functional_call, a wrapper of torch.func) is no Parameter, and W is computed afresh;
# - their versions are compared at each use: a change inside is an error, since one part of the step would have seen
#   the old weight and another the new one;
# - a weight computed under no_grad has no graph, so it is kept apart from the one with a graph;
# - a weight computed inside a torch.func transform may be that transform's wrapper, which dies with it: not kept;
# - the context variable is seen by the thread (or task) that entered the context only. Another thread computes for
#   itself, which is slower and right.
# A graph that is being compiled never comes here: its weight is computed once a call anyhow.
# `together` fills the cache when the context is entered, for the grad mode of that moment, by the same computation for
# many weights at once; every rule above holds for these entries too.


@runtime_checkable
class Owner(Protocol):
    """What the cache asks of a parametrization."""

    sizes: tuple[int, ...]
    center: bool
    method: str
    mapped_together: bool

    def key(self) -> Hashable:
        """Return what decides the weight besides `sources`."""
        ...

    def sources(self, V: Tensor) -> tuple[Tensor, ...]:
        """Return V, and the scale where it is learned."""
        ...

    def rows(self, V: Tensor) -> Tensor:
        """Return the rows to be orthonormal."""
        ...

    def weight_of(self, rows: Tensor, V: Tensor) -> Tensor:
        """Return the weight of the given orthonormal rows."""
        ...


@dataclass
class _Entry:
    sources: tuple[Tensor, ...]
    versions: tuple[tuple[int, int], ...]
    value: Tensor
    value_version: int


@dataclass
class _Cache:
    owners: dict[int, str]
    entries: dict[Hashable, _Entry] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    open: bool = True


_ACTIVE: ContextVar[tuple[_Cache, ...]] = ContextVar("orthonorm_cached", default=())


@contextmanager
def cached(model: nn.Module, *, together: bool = False) -> Iterator[None]:
    """Compute each orthogonal weight of the model at most once inside, however often it is read.

    Outside of this context a weight is computed at each read. Use it around a step that runs a module several times: a
    recurrent cell, tied weights, two losses on one network. Gradients add up as without it. What was computed inside
    belongs to one graph, so call `backward` once inside (or with `retain_graph=True`), and step the optimizer outside.

    Args:
        model: a module with orthogonal weights.
        together: compute all of them on entering, the roots of all groups of one size in one call, which takes a small
            part of the operator calls of weight by weight. A layer that is not run then has a zero gradient, not None.

    Yields:
        Nothing. Other threads, compiled code and `torch.func` transforms go on as if it were not there.

    Raises:
        TypeError: if `model` is not a module.
        ValueError: if the model has no orthogonal weight.
        RuntimeError: at a read inside, if V, the scale or the weight itself was changed since the first read.

    Example:
        >>> import torch, orthonorm as on
        >>> layer = on.OrthogonalLinear(8, 4)
        >>> with on.cached(layer):
        ...     layer.weight is layer.weight
        True

    Source: the interface follows `torch.nn.utils.parametrize.cached`, which neither knows threads nor changes.
    """
    owners = _owners(model)
    if not owners:
        raise ValueError(f"this {type(model).__name__} has no orthogonal weight to cache. Call orthogonalize_ first.")
    cache = _Cache({id(owner): name for name, owner, _ in owners})
    if together:
        _fill(cache, owners)
    token = _ACTIVE.set((*_ACTIVE.get(), cache))
    try:
        yield
    finally:
        _ACTIVE.reset(token)
        cache.open = False
        cache.entries.clear()


def register_cached(model: nn.Module, *, together: bool = True) -> RemovableHandle:
    """Run every call of the model inside `cached` from now on, by default with all its weights computed at once.

    For networks of many small layers, whose time goes into operator calls. Nothing outlives a call but its own graph.
    A model that is compiled, or folded, runs as if it had not been registered. Activation checkpointing computes the
    weights of a segment anew outside of the call, which torch refuses with an error: use one or the other.

    Args:
        model: a module with orthogonal weights, the one that is called.
        together: as in `cached`.

    Returns:
        A handle whose `remove()` ends it, for a call in progress too if that is in the same thread.

    Raises:
        TypeError: if `model` is not a module.
        ValueError: if the model has no orthogonal weight.

    Example:
        >>> import torch, orthonorm as on
        >>> model = torch.nn.Sequential(on.OrthogonalLinear(8, 4), on.OrthogonalLinear(4, 2))
        >>> handle = on.register_cached(model)
        >>> model(torch.zeros(1, 8)).shape
        torch.Size([1, 2])
        >>> handle.remove()

    Source: the name follows torch's `register_forward_hook`.
    """
    if not _owners(model):
        raise ValueError(f"this {type(model).__name__} has no orthogonal weight to cache. Call orthogonalize_ first.")
    before = model.register_forward_pre_hook(partial(_enter, together=together))
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
        while any(called is self.model for called, _ in _CALLS.get()):
            _leave(self.model, None, None)


# The modules whose calls are in progress, each with the context that it has entered; None where it needs none.
_CALLS: ContextVar[tuple[tuple[nn.Module, AbstractContextManager[None] | None], ...]] = ContextVar(
    "orthonorm_calls", default=()
)


def _enter(model: nn.Module, _args: Any, *, together: bool) -> None:
    if torch.compiler.is_compiling():
        return
    context = cached(model, together=together) if _owners(model) else None
    if context is not None:
        context.__enter__()
    _CALLS.set((*_CALLS.get(), (model, context)))


def _leave(model: nn.Module, _args: Any, _output: Any) -> None:
    if torch.compiler.is_compiling():
        return
    # torch runs this hook too where another one failed before `_enter`: then no call of this model is there to end.
    # A call inside this one is there still if its handle was removed meanwhile: it ends with this one.
    calls = _CALLS.get()
    place = max((i for i, (called, _) in enumerate(calls) if called is model), default=len(calls))
    _CALLS.set(calls[:place])
    for _, context in reversed(calls[place:]):
        if context is not None:
            context.__exit__(None, None, None)


def _owners(model: nn.Module) -> list[tuple[str, Any, Tensor]]:
    """Return the name, the parametrization and V of each orthogonal weight."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    return [
        (name.replace("parametrizations.", ""), module[0], module.original)  # type: ignore[misc]
        for name, module in model.named_modules()
        if isinstance(module, ParametrizationList) and hasattr(module[0], "orthonormal_rows")
    ]


def _fill(cache: _Cache, owners: list[tuple[str, Any, Tensor]]) -> None:
    """Compute the weights of all owners at once."""
    wanted: dict[Hashable, tuple[Owner, Tensor]] = {}
    for _, owner, V in owners:
        sources = owner.sources(V)
        if owner.mapped_together and _cacheable(sources):
            wanted[_key(owner, sources)] = owner, V
    rows = [Rows(owner.rows(V), owner.sizes, owner.center, owner.method) for owner, V in wanted.values()]
    for (key, (owner, V)), result in zip(wanted.items(), orthonormalize_together(rows), strict=True):
        sources, weight = owner.sources(V), owner.weight_of(result, V)
        if _has_memory(weight):
            cache.entries[key] = _entry(sources, weight)


def look_up(owner: Owner, V: Tensor, compute: Callable[[], Tensor]) -> Tensor:
    """Return what `compute` gives, or gave before inside an open `cached` that covers `owner`.

    Args:
        owner: the parametrization.
        V: the free matrix.
        compute: the computation itself.
    """
    cache = next((cache for cache in _ACTIVE.get() if cache.open and id(owner) in cache.owners), None)
    if cache is None:
        return compute()
    sources = owner.sources(V)
    if not _cacheable(sources):
        return compute()
    with cache.lock:
        key = _key(owner, sources)
        entry = cache.entries.get(key)
        if entry is None:
            value = compute()
            if not _has_memory(value):
                return value
            cache.entries[key] = entry = _entry(sources, value)
        elif entry.versions != tuple(map(_version, sources)):
            raise RuntimeError(_changed(cache.owners[id(owner)], "its free matrix V or its scale"))
        elif entry.value_version != _version(entry.value)[0]:
            raise RuntimeError(_changed(cache.owners[id(owner)], "the weight itself, which is a result,"))
        return entry.value


def _cacheable(sources: tuple[Tensor, ...]) -> bool:
    return all(type(source) is nn.Parameter for source in sources)


def _has_memory(value: Tensor) -> bool:
    """Return whether it is a tensor of its own, not a wrapper of a transform that is running."""
    try:
        value.data_ptr()
    except RuntimeError:
        return False
    return True


def _key(owner: Owner, sources: tuple[Tensor, ...]) -> Hashable:
    return owner.key(), torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *map(id, sources)


def _entry(sources: tuple[Tensor, ...], value: Tensor) -> _Entry:
    return _Entry(sources, tuple(map(_version, sources)), value, _version(value)[0])


def _version(tensor: Tensor) -> tuple[int, int]:
    """Return what changes when a tensor is written to, or given other memory; inference tensors count no versions."""
    return (0 if tensor.is_inference() else tensor._version, tensor.data_ptr())


def _changed(name: str, what: str) -> str:
    return (
        f"{name} was read inside `cached`, then {what} was changed in place, so one part of this step would use the "
        "old weight and another the new one. Leave the context before you step the optimizer, load a checkpoint or "
        "assign a weight, and enter it again afterwards."
    )
