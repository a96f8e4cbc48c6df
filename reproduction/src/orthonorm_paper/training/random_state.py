"""States of the random generators, as values that a checkpoint can hold."""

# Numpy's generator here is the global, old one, as that is what other packages' code draws from.

from __future__ import annotations

import random
from typing import Any, cast

import numpy as np
import torch


def random_state() -> dict[str, Any]:
    """States of torch's (every device), numpy's and Python's global generators."""
    kind, keys, position, has_gauss, gauss = cast(
        "tuple[str, np.ndarray, int, int, float]",
        np.random.get_state(legacy=True),  # noqa: NPY002
    )
    version, internal, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": [kind, torch.from_numpy(keys.astype(np.int64)), position, has_gauss, gauss],
        "python": [version, list(internal), gauss_next],
    }


def restore_random_state(state: dict[str, Any]) -> None:
    """Put the generators back to where ``random_state`` found them."""
    torch.set_rng_state(state["torch"])
    if state["cuda"] and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))  # noqa: NPY002
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))


def seed_everything(seed: int) -> None:
    """Seed the three global generators with the run's seed."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)
