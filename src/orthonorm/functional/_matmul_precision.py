"""Matrix products in full float32 where the library computes, whatever precision the process has asked for."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import torch

__all__ = ["full_float32", "products_are_reduced"]

_REDUCED = {"tf32", "bf16", "high", "medium"}

# Note [A setting is raised where it was made]
# Since torch 2.9 the precision of float32 products is a tree: the root, a backend, an operation of it. A setting of
# "none" follows the one above it, and what can be read of a setting is the value in force, not whose it is. So they are
# read from the root down: one that is still reduced when all above it are full has been set itself. Only such a setting
# is changed and written back, and one that followed another before follows it after. Meanwhile all that follows it is
# full, in other threads too: slower there, and right. Before torch 2.9 there is a single setting.
#
# A thread that finds nothing reduced while another has raised a setting must hold it too, or the other would lower it
# while this one computes.


def _are_reduced_now() -> bool:
    try:
        return torch.get_float32_matmul_precision() != "highest"
    except RuntimeError:  # it was set for one backend, which this function does not tell
        return True


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
    """The settings that threads have raised, until the last of those that need them raised is done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: set[object] = set()
        self._before: dict[_Setting, str] = {}

    def is_needed(self) -> bool:
        """Return whether products are reduced now, or will be once other threads are done."""
        with self._lock:
            return bool(self._before) or _are_reduced_now()

    def begin(self, user: object, device: torch.device) -> None:
        with self._lock:
            self._users.add(user)
            for setting in _settings(device):
                value = setting.read(*setting.place)
                if value in _REDUCED:
                    self._before[setting] = value
                    setting.write(*setting.place, setting.full)

    def end(self, user: object) -> None:
        with self._lock:
            self._users.discard(user)
            if not self._users:
                for setting, value in self._before.items():
                    setting.write(*setting.place, value)
                self._before.clear()

    def begin_in_child(self) -> None:
        """Restore in a forked process what threads had raised that are not in it; they may have held the lock."""
        self._lock = threading.Lock()
        self._users.clear()
        self.end(None)


# One for the process, because the settings are the process's: what a thread alone saves and restores another undoes.
_RAISED = _Raised()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_RAISED.begin_in_child)


def products_are_reduced() -> bool:
    """Return whether torch may compute float32 matrix products in TF32 or bfloat16, now or once threads are done."""
    return _RAISED.is_needed()


# What torch.compiler.assume_constant_result does, which would import the compiler. Compiled code has a guard on
# torch.set_float32_matmul_precision, and is compiled again for another value. A setting of one backend has no guard.
products_are_reduced._dynamo_marked_constant = True  # type: ignore[attr-defined]


def full_float32(device: torch.device, dtype: torch.dtype) -> AbstractContextManager[None]:
    """Return a context for products in full precision: the three digits of TF32 would leave float32 weights 1e-3 off.

    Where no reduced precision is in force nothing is changed, nor for float64, which has none.
    """
    return _raised(device) if dtype != torch.float64 and products_are_reduced() else nullcontext()


@contextmanager
def _raised(device: torch.device) -> Iterator[None]:
    user = object()
    try:
        _RAISED.begin(user, device)
        yield
    finally:
        _RAISED.end(user)
