"""Time against the number of rows and their length at a fixed size of groups: both are linear."""

from typing import Any

import torch

from orthonorm.functional import orthonormalize
from orthonorm.functional._groups import group_sizes
from orthonorm.functional._orthogonality import orthogonality_errors

from .timing import interleaved_medians, machine

__all__ = ["bench_scaling"]

GROUP = 64
ROWS = [(n, 1152) for n in (128, 256, 512, 1280)]
LENGTHS = [(256, d) for d in (576, 1152, 2304, 5760)]


def bench_scaling(*, device: str = "cpu", rounds: int = 21) -> dict[str, Any]:
    """Return the time of forward plus backward and its quotient by n d, relative to the first of a series."""
    where = torch.device(device)
    rows = [row for varied, shapes in (("n", ROWS), ("d", LENGTHS)) for row in _rows(varied, shapes, where, rounds)]
    return {"benchmark": "scaling", "machine": machine(where), "rounds": rounds, "rows": rows}


def _rows(varied: str, shapes: list[tuple[int, int]], device: torch.device, rounds: int) -> list[dict[str, Any]]:
    Vs = {shape: torch.randn(shape, device=device, requires_grad=True) for shape in shapes}
    Gs = {shape: torch.randn(shape, device=device) for shape in shapes}

    def run(shape: tuple[int, int]) -> object:
        return torch.autograd.grad(orthonormalize(Vs[shape], group_size=GROUP, center=True), Vs[shape], Gs[shape])

    runs = {str(shape): (lambda shape=shape: run(shape)) for shape in shapes}
    medians = interleaved_medians(runs, device=device, rounds=rounds)
    per_entry = {shape: medians[str(shape)] / (shape[0] * shape[1]) for shape in shapes}
    return [
        {
            "varied": varied,
            "n": n,
            "d": d,
            "group": GROUP,
            "milliseconds": medians[str((n, d))] * 1e3,
            "time an entry / the first": per_entry[n, d] / per_entry[shapes[0]],
            "error": _error(Vs[n, d]),
        }
        for n, d in shapes
    ]


def _error(V: torch.Tensor) -> float:
    n, d = V.shape
    W = orthonormalize(V.detach(), group_size=GROUP, center=True)
    return float(orthogonality_errors(W, group_sizes(n, d, group_size=GROUP)).max())
