"""Time one step of StiefelSGD beside geoopt's RiemannianSGD and beside a Householder QR step.

The two sides of a comparison get the same problem (geoopt's transposed, its convention being
columns) and run in turn, once each a round; a ratio is the median over rounds of the ratio within a
round. Prints a Markdown table, or JSON with --json. Gradients are drawn so that a step at the
rate used turns a weight by about 1%, as in training.

    python bench/bench_optim.py [--rounds 61] [--threads 1] [--json FILE]
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import geoopt
import torch
from torch import Tensor

from orthonorm.functional.stiefel import haar
from orthonorm.optim import StiefelSGD

LR = 0.01


@dataclass(frozen=True)
class Row:
    """One comparison: medians in milliseconds, ratio peer / ours, distance from the manifold."""

    case: str
    peer: str
    peer_ms: float
    ours_ms: float
    ratio: float
    ratio_quartiles: tuple[float, float]
    peer_error: float
    ours_error: float


def problem(count: int, n: int, d: int) -> tuple[list[Tensor], list[Tensor]]:
    """Points on the manifold and gradients of unit norm, rows orthonormal."""
    generator = torch.Generator().manual_seed(0)
    weights = [haar(n, d, generator=generator) for _ in range(count)]
    grads = [torch.randn(n, d, generator=generator) for _ in range(count)]
    return weights, [grad / torch.linalg.matrix_norm(grad) for grad in grads]


def ours(
    weights: list[Tensor], grads: list[Tensor], tall: bool = False, **options: object
) -> tuple[Callable[[], object], list[Tensor]]:
    """A StiefelSGD step over the weights (as columns if tall), and the weights."""
    params = [torch.nn.Parameter((w.mT if tall else w).contiguous().clone()) for w in weights]
    for param, grad in zip(params, grads, strict=True):
        param.grad = (grad.mT if tall else grad).contiguous().clone()
    optimizer = StiefelSGD(params, lr=LR, **options)  # type: ignore[arg-type]
    return optimizer.step, [param.mT if tall else param for param in params]


def geoopt_sgd(
    weights: list[Tensor], grads: list[Tensor], momentum: float
) -> tuple[Callable[[], object], list[Tensor]]:
    """Geoopt's RiemannianSGD step over the transposed weights, and the weights."""
    manifold = geoopt.EuclideanStiefel()
    params = [geoopt.ManifoldParameter(w.mT.contiguous().clone(), manifold=manifold) for w in weights]
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad.mT.contiguous().clone()
    optimizer = geoopt.optim.RiemannianSGD(params, lr=LR, momentum=momentum)
    return optimizer.step, [param.mT for param in params]


def householder(weights: list[Tensor], grads: list[Tensor]) -> tuple[Callable[[], object], list[Tensor]]:
    """The Euclidean-gradient step of tall weights with LAPACK's QR, and the weights."""
    points = [w.mT.contiguous().clone() for w in weights]
    ambient = [g.mT.contiguous() for g in grads]

    def step() -> None:
        for point, grad in zip(points, ambient, strict=True):
            C = point.mT @ grad
            Q, R = torch.linalg.qr(point - LR * (grad - point @ ((C + C.mT) / 2)))
            point.copy_(Q * R.diagonal().sign())

    return step, [point.mT for point in points]


def error(weights: list[Tensor]) -> float:
    """Largest entry of |W W^T - I|, in float64."""
    wide = [w.detach().double() for w in weights]
    return max((w @ w.mT - torch.eye(len(w), dtype=w.dtype)).abs().max().item() for w in wide)


def compare(
    case: str,
    peer: str,
    peer_side: tuple[Callable[[], object], list[Tensor]],
    our_side: tuple[Callable[[], object], list[Tensor]],
    rounds: int,
) -> Row:
    """Run the two steps in turn and compare them."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(3):
        peer_side[0](), our_side[0]()
    for _ in range(rounds):
        for (step, _), spent in zip((peer_side, our_side), times, strict=True):
            start = time.perf_counter()
            step()
            spent.append(1e3 * (time.perf_counter() - start))
    ratios = [p / o for p, o in zip(*times, strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    peer_ms, ours_ms = map(statistics.median, times)
    return Row(case, peer, peer_ms, ours_ms, middle, (low, high), error(peer_side[1]), error(our_side[1]))


def run(rounds: int) -> list[Row]:
    """All comparisons of the table."""
    rows = []
    for count, n, d in ((200, 32, 64), (20, 100, 1024)):
        weights, grads = problem(count, n, d)
        for momentum in (0.0, 0.9):
            rows.append(
                compare(
                    f"{count} of {n} x {d}, euclidean + qr, momentum {momentum}",
                    "geoopt RiemannianSGD",
                    geoopt_sgd(weights, grads, momentum),
                    ours(weights, grads, momentum=momentum),
                    rounds,
                )
            )
    weights, grads = problem(1, 100, 1024)
    for metric, retraction in (
        ("canonical", "cayley"),
        ("euclidean", "qr"),
        ("euclidean", "polar"),
    ):
        rows.append(
            compare(
                f"1024 x 100 (columns), {metric} + {retraction}",
                "Householder QR step",
                householder(weights, grads),
                ours(weights, grads, tall=True, metric=metric, retraction=retraction),
                rounds,
            )
        )
    return rows


def markdown(rows: list[Row]) -> str:
    """The rows as a Markdown table."""
    lines = [
        "| case | peer | peer ms | ours ms | peer / ours (quartiles) | error peer, ours |",
        "|---|---|---|---|---|---|",
    ]
    for r in rows:
        low, high = r.ratio_quartiles
        lines.append(
            f"| {r.case} | {r.peer} | {r.peer_ms:.2f} | {r.ours_ms:.2f} "
            f"| {r.ratio:.2f} ({low:.2f} to {high:.2f}) | {r.peer_error:.1e}, {r.ours_error:.1e} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=61)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", help="also write the rows and the versions to this file")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = run(args.rounds)
    print(f"torch {torch.__version__}, geoopt {geoopt.__version__}, {args.threads} threads, CPU\n")
    print(markdown(rows))
    if args.json:
        versions = {"torch": torch.__version__, "geoopt": geoopt.__version__}
        about = {**versions, "threads": args.threads, "machine": platform.machine()}
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"about": about, "rows": [asdict(row) for row in rows]}, file, indent=1)


if __name__ == "__main__":
    main()
