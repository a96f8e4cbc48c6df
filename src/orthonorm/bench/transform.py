"""The transformation alone, forward plus backward, against its floor and a loop of SVDs, with the accuracy of each."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from orthonorm.functional import orthonormalize
from orthonorm.functional.errors import group_errors
from orthonorm.functional.grouping import group_sizes

from .timing import interleaved_medians, machine, product_rate

__all__ = ["SHAPES", "bench_transform", "spectrum_matrix", "svd_loop"]

SHAPES = {
    "VGG conv 512 x 4608": (512, 4608, 64),
    "WRN-28-10 conv 640 x 5760": (640, 5760, 64),
    "one group 64 x 576": (64, 576, 64),
    "MLP layer 100 x 100": (100, 100, 50),
}


def spectrum_matrix(n: int, d: int, group: int, *, condition: float, seed: int = 0) -> Tensor:
    """Return a float32 matrix whose groups of rows have centred, log-spaced spectra of the given condition number."""
    generator = torch.Generator().manual_seed(seed)
    groups = []
    for start in range(0, n, group):
        size = min(group, n - start)
        X = torch.randn(size, d, generator=generator, dtype=torch.float64)
        U, _, R = torch.linalg.svd(X - X.mean(-1, keepdim=True), full_matrices=False)
        groups.append(U * torch.logspace(0, -math.log10(condition), size, dtype=torch.float64) @ R)
    return torch.cat(groups).float()


def svd_loop(V: Tensor, group: int) -> Tensor:
    """Return W by one SVD of Sigma a group with autograd through it: the usual way, which our path is compared with."""
    parts = []
    for part in V.split(group):
        X = part - part.mean(-1, keepdim=True)
        U, s, _ = torch.linalg.svd(X @ X.mT / X.shape[-1])
        P = U @ torch.diag((s + 1e-8).rsqrt()) @ U.mT
        parts.append(P @ X / math.sqrt(X.shape[-1]))
    return torch.cat(parts)


def bench_transform(*, device: str = "cpu", rounds: int = 21) -> dict[str, Any]:
    """Return times and accuracies of every shape: seconds, ratio to the floor of `10 n N d` operations, errors."""
    where = torch.device(device)
    rows = [row for label, shape in SHAPES.items() for row in _shape_rows(label, shape, where, rounds)]
    return {"benchmark": "transform", "machine": machine(where), "rounds": rounds, "rows": rows}


def _shape_rows(label: str, shape: tuple[int, int, int], device: torch.device, rounds: int) -> list[dict[str, Any]]:
    n, d, group = shape
    paths: dict[str, Callable[[Tensor], Tensor]] = {
        "orthonorm, auto": lambda V: orthonormalize(V, group_size=group),
        "orthonorm, newton": lambda V: orthonormalize(V, group_size=group, method="newton"),
        "loop of SVDs, autograd": lambda V: svd_loop(V, group),
    }
    V = torch.randn(n, d, device=device, requires_grad=True)
    G = torch.randn(n, d, device=device)
    product, operations = product_rate(device)
    runs = {name: (lambda path=path: torch.autograd.grad(path(V), V, G)) for name, path in paths.items()}
    medians = interleaved_medians({"product": product, **runs}, rounds=rounds)
    floor = 10.0 * n * group * d * medians["product"] / operations
    sizes = group_sizes(n, d, group_size=group)
    hard = spectrum_matrix(n, d, group, condition=1e3).to(device)
    return [
        {
            "shape": label,
            "group": group,
            "path": name,
            "milliseconds": medians[name] * 1e3,
            "times the floor": medians[name] / floor,
            "times the loop of SVDs": medians[name] / medians["loop of SVDs, autograd"],
            "error, Gaussian V": float(group_errors(path(V.detach()), sizes).max()),
            "error, condition 1e3": float(group_errors(path(hard), sizes).max()),
        }
        for name, path in paths.items()
    ]
