"""In which type the map is computed, whatever the type of the weight and the autocast around it."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

__all__ = ["in_float64", "keeping_precision", "without_autocast", "working_dtype"]


def working_dtype(*tensors: Tensor) -> torch.dtype:
    """Return the type in which Gram matrices are formed: float64, or float32 on a device without it."""
    return torch.float32 if any(t.device.type == "mps" for t in tensors) else torch.float64


def in_float64(X: Tensor) -> Tensor:
    """Return X in float64 where it lies; on the CPU where its device has none. For diagnostics, which may be slow."""
    return (X if working_dtype(X) == torch.float64 else X.cpu()).to(torch.float64)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which products keep their types; on `meta`, which has no autocast, one that does nothing."""
    return nullcontext() if device.type == "meta" else torch.autocast(device.type, enabled=False)


def keeping_precision(*tensors: Tensor) -> AbstractContextManager[Any]:
    """Return `without_autocast` where the working type is one that autocast would lower: never float64."""
    return nullcontext() if working_dtype(*tensors) == torch.float64 else without_autocast(tensors[0].device)
