"""The small matrices alone: Sigma^{-1/2} of a batch and its adjoint, by every method that runs on the device."""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import torch
from torch import Tensor

from orthonorm.functional._inverse_sqrt import root
from orthonorm.functional._methods import METHODS

from .timing import interleaved_medians, machine

__all__ = ["BATCHES", "bench_roots"]

# How many matrices, of how many rows: a layer of 512 in groups of 64, a network's worth of them, larger groups.
BATCHES = [(8, 64), (64, 64), (8, 128)]


def bench_roots(*, device: str = "cpu", rounds: int = 21) -> dict[str, Any]:
    """Return the times of the root and of its adjoint, relative to batched `eigh`, each with its error."""
    where = torch.device(device)
    rows = [row for count, n in BATCHES for row in _rows(count, n, where, rounds)]
    return {"benchmark": "roots", "machine": machine(where), "rounds": rounds, "rows": rows}


def _rows(count: int, n: int, device: torch.device, rounds: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    X, A = (torch.randn(count, n, m, generator=generator, dtype=torch.float64).to(device) for m in (4 * n, n))
    Sigma = torch.bmm(X, X.mT)
    factors = {name: root(Sigma, name) for name in METHODS}
    runs: dict[str, Callable[[], object]] = {f"{name}, root": (lambda name=name: root(Sigma, name)) for name in METHODS}
    runs |= {f"{name}, adjoint": (lambda name=name: _adjoint(name, factors[name], A)) for name in METHODS}
    product = torch.randn(256, 256, device=device)
    runs["after a product"] = lambda: (product @ product, torch.linalg.eigh(Sigma))
    runs["in two threads"] = lambda: (product @ product, _eigh_in_two_threads(Sigma))
    medians = interleaved_medians(runs, device=device, rounds=rounds)
    eye = torch.eye(n, dtype=torch.float64, device=device)
    return [
        {
            "matrices": count,
            "size": f"{n} x {n}",
            "method": name,
            "root, milliseconds": medians[f"{name}, root"] * 1e3,
            "times eigh": medians[f"{name}, root"] / medians["eigh, root"],
            "in two threads, times eigh": medians["in two threads"] / medians["after a product"]
            if name == "eigh"
            else None,
            "adjoint, milliseconds": medians[f"{name}, adjoint"] * 1e3,
            "times eigh's": medians[f"{name}, adjoint"] / medians["eigh, adjoint"],
            "error of the root": float((P @ Sigma @ P - eye).abs().max()),
            "error of the adjoint": float(_residual(P, A, _adjoint(name, factors[name], A))),
        }
        for name, (P, _, _) in factors.items()
    ]


def _eigh_in_two_threads(Sigma: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return the decompositions of the halves of a batch, each computed by a thread of its own with one core."""
    return list(_threads().map(torch.linalg.eigh, Sigma.chunk(2)))


@functools.cache
def _threads() -> ThreadPoolExecutor:
    threads, both = torch.get_num_threads(), Barrier(2)

    def take_one_core() -> None:
        torch.get_num_threads()  # a thread takes the number of the process at its first call, and would do so later
        torch.set_num_threads(1)
        both.wait()

    pool = ThreadPoolExecutor(2, initializer=take_one_core)
    list(pool.map(lambda _: both.wait(), range(2)))
    torch.set_num_threads(threads)
    return pool


def _adjoint(method: str, factor: tuple[Tensor, Tensor, Tensor], A: Tensor) -> Tensor:
    P, basis, numbers = factor
    return METHODS[method].adjoint(P, A, basis, numbers)


def _residual(P: Tensor, A: Tensor, PY: Tensor) -> Tensor:
    """Return how far P Y + Y P is from P A + A^T P, relative to it; Y is symmetric."""
    right = P @ A + (P @ A).mT
    return (PY + PY.mT - right).norm() / right.norm()
