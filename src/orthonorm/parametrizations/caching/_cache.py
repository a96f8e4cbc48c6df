"""Which weights are kept while a context is open, and when one of them is used again."""

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from orthonorm.functional._many_weights import Rows, orthonormalize_together
from orthonorm.functional._option_types import MethodName, Precision

from ._repeated_reads import RepeatedReads

__all__ = ["ACTIVE", "Cache", "Owner", "close_caches", "fill", "look_up", "open_cache", "write_count"]

# Note [what the cache may hold]
# A cached weight is right only for the V and the scale it was computed from, and only while they stay unchanged. So
# - an entry holds the tensors it came from, not their ids alone, and is used for exactly these. Whatever stands in for
#   V elsewhere (a tensor of functional_call, a wrapper of torch.func) is no Parameter, and W is computed afresh;
# - their versions are compared at each use: a change inside is an error, since one part of the step would have seen
#   the old weight and another the new one. Fused optimizers count no versions, so steps are watched
#   (_optimizer_steps.py);
# - a weight computed under no_grad, or of a frozen V, has no graph, so it is kept apart from the one with a graph;
# - a weight computed inside a torch.func transform may be that transform's wrapper, which dies with it: not kept;
# - the context variable is seen by the thread (or task) that entered the context only. Another thread computes for
#   itself, which is slower and right.
# A graph that is being compiled never comes here: its weight is computed once a call anyhow.
# The cache is filled when the context is entered, for the grad mode of that moment, by the same computation for many
# weights at once; every rule above holds for these entries too.


@runtime_checkable
class Owner(Protocol):
    """What the cache asks of a parametrization."""

    sizes: tuple[int, ...]
    center: bool
    method: MethodName
    precision: Precision
    mapped_together: bool
    training: bool
    label: str
    reads: RepeatedReads

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
    stepped: bool = False


@dataclass(eq=False)
class Cache:
    """The weights kept by one context or call."""

    owners: dict[int, str]
    """The names of the weights it is for, by the ids of their parametrizations."""
    model: nn.Module | None = None
    """The model whose registered call this serves; None for a context of its own."""
    call: int | None = None
    """The id of the frame of that call, which a frame itself would keep alive with all that it knows."""
    is_running: Callable[[], bool] = lambda: True
    """Whether that call has not ended."""
    entries: dict[Hashable, _Entry] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    open: bool = True

    def serves(self, owner: Owner) -> bool:
        """Return whether a weight of the owner is kept here."""
        return self.open and id(owner) in self.owners

    def outdate(self, stepped: set[int]) -> None:
        """Note of the tensors with these ids that an optimizer has stepped them."""
        with self.lock:
            for entry in self.entries.values():
                entry.stepped |= any(id(source) in stepped for source in entry.sources)


ACTIVE: ContextVar[tuple[Cache, ...]] = ContextVar("orthonorm_cached", default=())


def open_cache(cache: Cache) -> None:
    """Open a cache in this thread; of several that are for a weight, the one opened first keeps it."""
    ACTIVE.set((*ACTIVE.get(), cache))


def close_caches(*caches: Cache) -> None:
    """End caches, in this thread and wherever its context was copied to."""
    if not caches:
        return
    ACTIVE.set(tuple(cache for cache in ACTIVE.get() if cache not in caches))
    for cache in caches:
        cache.open = False
        cache.entries.clear()


def fill(cache: Cache, owners: list[tuple[str, Any, Tensor]]) -> None:
    """Compute the weights of all owners at once."""
    wanted: dict[Hashable, tuple[Owner, Tensor]] = {}
    for _, owner, V in owners:
        sources = owner.sources(V)
        if owner.mapped_together and _cacheable(sources):
            wanted[_key(owner, sources)] = owner, V
    rows = [
        Rows(owner.rows(V), owner.sizes, owner.center, owner.method, owner.precision) for owner, V in wanted.values()
    ]
    for (key, (owner, V)), result in zip(wanted.items(), orthonormalize_together(rows), strict=True):
        sources, weight = owner.sources(V), owner.weight_of(result, V)
        if _has_memory(weight):
            cache.entries[key] = _entry(sources, weight)


def look_up(owner: Owner, V: Tensor, compute: Callable[[], Tensor]) -> Tensor:
    """Return what `compute` gives, or gave before inside an open `cached` that covers `owner`.

    Args:
        owner: the parametrization.
        V: the unconstrained parameter.
        compute: the computation itself.
    """
    close_caches(*(cache for cache in ACTIVE.get() if not cache.is_running()))
    cache = next((cache for cache in ACTIVE.get() if cache.serves(owner)), None)
    if cache is None:
        weight = compute()
        owner.reads.note(owner, V, weight)
        return weight
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
        elif entry.stepped or entry.versions != tuple(map(_version, sources)):
            raise RuntimeError(_changed(cache.owners[id(owner)], "its unconstrained parameter V or its scale"))
        elif entry.value_version != write_count(entry.value):
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
    graph = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    return owner.key(), *graph, *((id(x), x.requires_grad) for x in sources)


def _entry(sources: tuple[Tensor, ...], value: Tensor) -> _Entry:
    return _Entry(sources, tuple(map(_version, sources)), value, write_count(value))


def _version(tensor: Tensor) -> tuple[int, int]:
    """Return what changes when a tensor is written to, or given other memory."""
    return write_count(tensor), tensor.data_ptr()


def write_count(tensor: Tensor) -> int:
    """Return how often torch saw a tensor written to; one made in inference mode counts nothing."""
    return 0 if tensor.is_inference() else tensor._version


def _changed(name: str, what: str) -> str:
    return (
        f"{name} was read inside `cached`, then {what} was changed in place, so one part of this step would use the "
        "old weight and another the new one. Leave the context before you step the optimizer, load a checkpoint or "
        "assign a weight, and enter it again afterwards."
    )
