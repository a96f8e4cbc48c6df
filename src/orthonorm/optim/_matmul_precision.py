"""Products in full float32 during a step, whatever precision the process has asked for."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

__all__ = ["full_float32"]

_REDUCED = {"tf32", "bf16", "high", "medium"}

# Note [A setting is raised where it was made]
# Since torch 2.9 the precision of float32 products is a tree: the root, a backend, an operation of it. A setting of
# "none" follows the one above it, and what can be read of a setting is the value in force, not whose it is. So they are
# read from the root down: one that is still reduced when all above it are full has been set itself. Only such a setting
# is changed and written back, and one that followed another before the step follows it after. Meanwhile all that
# follows it is full, in other threads too: slower there, and right. Before torch 2.9 there is a single setting.


class _Setting(NamedTuple):
    read: Callable[..., str]
    write: Callable[..., object]
    place: tuple[str, ...]
    full: str


def _settings(device: torch.device) -> list[_Setting]:
    """Return the settings that decide about products on a device, from the root down."""
    if not hasattr(torch._C, "_get_fp32_precision_getter"):
        return [_Setting(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, (), "highest")]
    backend = "cuda" if device.type == "cuda" else "mkldnn"
    # The attributes of torch.backends are these calls, but to set that of mkldnn sets the root.
    read, write = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
    places = (("generic", "all"), (backend, "all"), (backend, "matmul"))
    return [_Setting(read, write, place, "ieee") for place in places]


class _Raised:
    """The settings that the steps of all threads have raised, until the last of these steps ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: set[object] = set()
        self._before: dict[_Setting, str] = {}

    def begin(self, step: object, device: torch.device) -> None:
        with self._lock:
            self._steps.add(step)
            for setting in _settings(device):
                value = setting.read(*setting.place)
                if value in _REDUCED:
                    self._before[setting] = value
                    setting.write(*setting.place, setting.full)

    def end(self, step: object) -> None:
        with self._lock:
            self._steps.discard(step)
            if not self._steps:
                for setting, value in self._before.items():
                    setting.write(*setting.place, value)
                self._before.clear()


# One for the process, because the settings are the process's: what a thread alone saves and restores another undoes.
_RAISED = _Raised()


@contextmanager
def full_float32(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Products in full precision: the three digits of TF32 would leave float32 weights 1e-3 off the manifold.

    Where no reduced precision is in force nothing is changed, nor for float64, which has none.
    """
    if dtype == torch.float64:
        yield
        return
    step = object()
    try:
        _RAISED.begin(step, device)
        yield
    finally:
        _RAISED.end(step)
