"""Each orthogonal weight computed once inside a context: for weights that are used several times in a step."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock

import torch
from torch import Tensor, nn

__all__ = ["cached", "look_up"]

# Note [what the cache may hold]
# A cached weight is right only for the V and the scale it was computed from, and only while they stay unchanged. So
# - an entry holds the tensors it came from, not their ids alone, and is used for exactly these. Whatever stands in for
#   V elsewhere (a tensor of functional_call, a wrapper of torch.func) is no Parameter, and W is computed afresh;
# - their versions are compared at each use: a change inside is an error, since one part of the step would have seen
#   the old weight and another the new one;
# - a weight computed under no_grad has no graph, so it is kept apart from the one with a graph;
# - the context variable is seen by the thread (or task) that entered the context only. Another thread computes for
#   itself, which is slower and right.
# A graph that is being compiled never comes here: its weight is computed once a call anyhow.


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
def cached(model: nn.Module) -> Iterator[None]:
    """Compute each orthogonal weight of the model at most once inside, however often it is read.

    Outside of this context a weight is computed at each read. Use it around a step that runs a module several times: a
    recurrent cell, tied weights, two losses on one network. Gradients add up as without it. What was computed inside
    belongs to one graph, so call `backward` once inside (or with `retain_graph=True`), and step the optimizer outside.

    Args:
        model: a module with orthogonal weights.

    Yields:
        Nothing. Other threads, compiled code and `torch.func` transforms go on as if it were not there.

    Raises:
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
    names = {
        id(module): name.replace("parametrizations.", "").removesuffix(".0")
        for name, module in model.named_modules()
        if hasattr(module, "orthonormal_rows")
    }
    if not names:
        raise ValueError(f"this {type(model).__name__} has no orthogonal weight to cache. Call orthogonalize_ first.")
    cache = _Cache(names)
    token = _ACTIVE.set((*_ACTIVE.get(), cache))
    try:
        yield
    finally:
        _ACTIVE.reset(token)
        cache.open = False
        cache.entries.clear()


def look_up(owner: nn.Module, key: Hashable, sources: tuple[Tensor, ...], compute: Callable[[], Tensor]) -> Tensor:
    """Return what `compute` gives, or gave before inside an open `cached` that covers `owner`.

    Args:
        owner: the parametrization.
        key: all that decides the weight besides `sources`.
        sources: V, and the scale where it is learned.
        compute: the computation itself.
    """
    cache = next((cache for cache in _ACTIVE.get() if cache.open and id(owner) in cache.owners), None)
    if cache is None or not all(type(source) is nn.Parameter for source in sources):
        return compute()
    graph = torch.is_grad_enabled()
    key = (key, graph, torch.is_inference_mode_enabled(), *map(id, sources))
    with cache.lock:
        entry = cache.entries.get(key)
        if entry is None:
            versions = tuple(map(_version, sources))
            value = compute()
            cache.entries[key] = entry = _Entry(sources, versions, value, _version(value)[0])
        elif entry.versions != tuple(map(_version, sources)):
            raise RuntimeError(_changed(cache.owners[id(owner)], "its free matrix V or its scale"))
        elif entry.value_version != _version(entry.value)[0]:
            raise RuntimeError(_changed(cache.owners[id(owner)], "the weight itself, which is a result,"))
        return entry.value


def _version(tensor: Tensor) -> tuple[int, int]:
    """Return what changes when a tensor is written to, or given other memory; inference tensors count no versions."""
    return (0 if tensor.is_inference() else tensor._version, tensor.data_ptr())


def _changed(name: str, what: str) -> str:
    return (
        f"{name} was read inside `cached`, then {what} was changed in place, so one part of this step would use the "
        "old weight and another the new one. Leave the context before you step the optimizer, load a checkpoint or "
        "assign a weight, and enter it again afterwards."
    )
