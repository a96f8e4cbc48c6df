"""A step of StiefelSGD beside geoopt's RiemannianSGD, and beside a step with Householder's QR.

The sides of a comparison get the same problem (geoopt's transposed, its convention being columns), interleaved.
Gradients are drawn so that a step at the learning rate used turns a weight by about 1%, as in training.
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from orthonorm.functional._option_types import MetricName, RetractionName
from orthonorm.functional._orthogonality import orthogonality_errors
from orthonorm.functional.stiefel._manifold import haar
from orthonorm.optim import StiefelSGD

from .timing import interleaved_medians, machine

__all__ = ["bench_optim"]

LR = 0.01
Side = tuple[Callable[[], object], list[Tensor]]


def bench_optim(*, device: str = "cpu", rounds: int = 21) -> dict[str, Any]:
    """Return seconds, ratios and distances from the manifold; geoopt's rows only where it is installed."""
    where = torch.device(device)
    rows = []
    for count, n, d in ((200, 32, 64), (20, 100, 1024)) if importlib.util.find_spec("geoopt") else ():
        problem = _problem(count, n, d, where)
        for momentum in (0.0, 0.9):
            sides = {
                "geoopt RiemannianSGD": _geoopt(*problem, momentum),
                "StiefelSGD": _ours(*problem, momentum=momentum),
            }
            rows += _rows(f"{count} of {n} x {d}, euclidean + qr, momentum {momentum}", sides, where, rounds)
    problem = _problem(1, 100, 1024, where)
    sides = {"Householder QR step": _householder(*problem)}
    pairs: list[tuple[MetricName, RetractionName]] = [
        ("canonical", "cayley"),
        ("euclidean", "qr"),
        ("euclidean", "polar"),
    ]
    for metric, retraction in pairs:
        label = f"StiefelSGD, {metric} + {retraction}"
        sides[label] = _ours(*problem, tall=True, metric=metric, retraction=retraction)
    rows += _rows("1024 x 100, orthonormal columns", sides, where, rounds)
    problem = _problem(20, 32, 64, where)
    sides = {
        "StiefelSGD, eager": _scheduled(_ours(*problem, momentum=0.9)),
        "StiefelSGD, in a compiled function": _scheduled(_ours(*problem, momentum=0.9), compiled=True),
    }
    rows += _rows("20 of 32 x 64, the learning rate changes at each step", sides, where, rounds)
    return {"benchmark": "optim", "machine": machine(where), "rounds": rounds, "rows": rows}


def _rows(case: str, sides: dict[str, Side], device: torch.device, rounds: int) -> list[dict[str, Any]]:
    steps = {name: step for name, (step, _) in sides.items()}
    medians = interleaved_medians(steps, device=device, rounds=rounds)
    first = next(iter(sides))
    return [
        {
            "case": case,
            "step": name,
            "milliseconds": medians[name] * 1e3,
            "times the first": medians[name] / medians[first],
            "first / this": medians[first] / medians[name],
            "error": max(float(orthogonality_errors(weight).amax()) for weight in weights),
        }
        for name, (_, weights) in sides.items()
    ]


def _problem(count: int, n: int, d: int, device: torch.device) -> tuple[list[Tensor], list[Tensor]]:
    """Return points on the manifold and gradients of unit norm, rows orthonormal."""
    generator = torch.Generator().manual_seed(0)
    weights = [haar(n, d, generator=generator).to(device) for _ in range(count)]
    grads = [torch.randn(n, d, generator=generator).to(device) for _ in range(count)]
    return weights, [grad / torch.linalg.matrix_norm(grad) for grad in grads]


def _ours(
    weights: list[Tensor],
    grads: list[Tensor],
    *,
    tall: bool = False,
    momentum: float = 0.0,
    metric: MetricName = "euclidean",
    retraction: RetractionName = "qr",
) -> Side:
    params = [torch.nn.Parameter((w.mT if tall else w).contiguous().clone()) for w in weights]
    for param, grad in zip(params, grads, strict=True):
        param.grad = (grad.mT if tall else grad).contiguous().clone()
    optimizer = StiefelSGD(params, lr=LR, momentum=momentum, metric=metric, retraction=retraction)
    return optimizer.step, [param.mT if tall else param for param in params]


def _scheduled(side: Side, *, compiled: bool = False) -> Side:
    """Return a side whose learning rate changes before each of its steps, which may be inside a compiled function."""
    step, weights = side
    optimizer: Any = getattr(step, "__self__", None)

    def train() -> None:
        step()

    run = torch.compile(train) if compiled else train

    def scheduled() -> None:
        optimizer.param_groups[0]["lr"] *= 0.999
        run()

    return scheduled, weights


def _geoopt(weights: list[Tensor], grads: list[Tensor], momentum: float) -> Side:
    import geoopt

    manifold = geoopt.EuclideanStiefel()
    params = [geoopt.ManifoldParameter(w.mT.contiguous().clone(), manifold=manifold) for w in weights]  # pyright: ignore[reportCallIssue]
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad.mT.contiguous().clone()
    optimizer = geoopt.optim.RiemannianSGD(params, lr=LR, momentum=momentum)  # pyright: ignore[reportArgumentType]
    return optimizer.step, [param.mT for param in params]


def _householder(weights: list[Tensor], grads: list[Tensor]) -> Side:
    points = [w.mT.contiguous().clone() for w in weights]
    ambient = [g.mT.contiguous() for g in grads]

    def step() -> None:
        for point, grad in zip(points, ambient, strict=True):
            C = point.mT @ grad
            Q, R = torch.linalg.qr(point - LR * (grad - point @ ((C + C.mT) / 2)))
            point.copy_(Q * R.diagonal().sign())

    return step, [point.mT for point in points]
