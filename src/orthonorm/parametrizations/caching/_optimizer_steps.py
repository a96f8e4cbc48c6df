"""Steps of optimizers, reported to the caches that are open: a fused one counts no versions of what it writes to."""

from functools import lru_cache
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from ._cache import ACTIVE

__all__ = ["watch_steps"]


@lru_cache(maxsize=1)
def watch_steps() -> None:
    """Watch the optimizers of this process, from the first call on and for good.

    A hook that came and went with a cache could meet the step of another thread.
    """
    register_optimizer_step_post_hook(_after_step)


def _after_step(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
    if torch.compiler.is_compiling() or not ACTIVE.get():
        return
    stepped = {id(p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None}
    for cache in ACTIVE.get():
        cache.outdate(stepped)
