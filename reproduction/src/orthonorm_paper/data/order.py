"""The order of samples and their splits: pure functions of a key."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from orthonorm_paper.exceptions import UserError


def batch_order(seed: int, epoch: int, n: int, batch_size: int) -> Iterator[Tensor]:
    """Indices of the batches of one epoch, on the CPU: a pure function of its arguments.

    The samples are shuffled again every epoch; an incomplete last batch is dropped.

    Raises:
        UserError: there is not one whole batch.

    Examples:
        >>> [batch.tolist() for batch in batch_order(seed=0, epoch=1, n=5, batch_size=2)]
        [[1, 0], [3, 4]]
    """
    if batch_size > n:
        raise UserError(f"batch_size must be at most the {n} training samples; got {batch_size}.")
    order = torch.randperm(n, generator=generator(seed, epoch))
    for start in range(0, n - n % batch_size, batch_size):
        yield order[start : start + batch_size]


def generator(*key: int | str) -> torch.Generator:
    """CPU generator whose state is a function of the key alone.

    Hashing the key keeps (seed 0, epoch 1) and (seed 1, epoch 0) apart.
    """
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def hold_out(n: int, count: int, *key: int | str) -> tuple[Tensor, Tensor]:
    """Indices of ``n - count`` random samples that are kept and of the ``count`` others, each in order.

    Examples:
        >>> kept, held_out = hold_out(5, 2, "example")
        >>> sorted(kept.tolist() + held_out.tolist()), len(held_out)
        ([0, 1, 2, 3, 4], 2)
    """
    order = torch.randperm(n, generator=generator(*key))
    return order[count:].sort().values, order[:count].sort().values
