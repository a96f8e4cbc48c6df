"""The small matrices alone: Sigma^{-1/2} of a batch and its adjoint, by every method that runs on the device."""

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
    """Return the times of the root and of its adjoint, relative to batched `eigh`, each with its error.

    "fused" has a row where its kernels run, that is, on a CUDA device with Triton; elsewhere it would be "newton".
    """
    where = torch.device(device)
    rows = [row for count, n in BATCHES for row in _rows(count, n, where, rounds)]
    return {"benchmark": "roots", "machine": machine(where), "rounds": rounds, "rows": rows}


def _rows(count: int, n: int, device: torch.device, rounds: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    X, A = (torch.randn(count, n, m, generator=generator, dtype=torch.float64).to(device) for m in (4 * n, n))
    Sigma = torch.bmm(X, X.mT)
    methods = [name for name in METHODS if True]
    factors = {name: root(Sigma, name) for name in methods}
    runs = {f"{name}, root": (lambda name=name: root(Sigma, name)) for name in methods}
    runs |= {f"{name}, adjoint": (lambda name=name: _adjoint(name, factors[name], A)) for name in methods}
    medians = interleaved_medians(runs, device=device, rounds=rounds)
    eye = torch.eye(n, dtype=torch.float64, device=device)
    return [
        {
            "matrices": count,
            "size": f"{n} x {n}",
            "method": name,
            "root, milliseconds": medians[f"{name}, root"] * 1e3,
            "times eigh": medians[f"{name}, root"] / medians["eigh, root"],
            "adjoint, milliseconds": medians[f"{name}, adjoint"] * 1e3,
            "times eigh's": medians[f"{name}, adjoint"] / medians["eigh, adjoint"],
            "error of the root": float((P @ Sigma @ P - eye).abs().max()),
            "error of the adjoint": float(_residual(P, A, _adjoint(name, factors[name], A))),
        }
        for name, (P, _, _) in factors.items()
    ]


def _adjoint(method: str, factor: tuple[Tensor, Tensor, Tensor], A: Tensor) -> Tensor:
    P, basis, numbers = factor
    return METHODS[method].adjoint(P, A, basis, numbers)


def _residual(P: Tensor, A: Tensor, PY: Tensor) -> Tensor:
    """Return how far P Y + Y P is from P A + A^T P, relative to it; Y is symmetric."""
    right = P @ A + (P @ A).mT
    return (PY + PY.mT - right).norm() / right.norm()
