"""The transformation alone, forward plus backward, against its floor and its peers, with the accuracy of each."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from orthonorm.functional import orthonormalize
from orthonorm.functional._groups import group_sizes
from orthonorm.functional._methods import METHODS, choose_method
from orthonorm.functional._orthogonality import orthogonality_errors
from orthonorm.layers import OrthogonalLinear

from .peers import eigh_autograd, newton_autograd, peer_layers, svd_loop
from .timing import interleaved_medians, machine, product_rate

__all__ = ["SHAPES", "bench_peers", "bench_transform", "products_and_roots", "spectrum_matrix"]

# Rows, their length, and rows per group.
SHAPES = {
    "VGG conv 6": (512, 4608, 64),
    "VGG conv 3": (256, 1152, 64),
    "VGG conv 2": (128, 576, 64),
    "WRN-28-10 conv, last stage": (640, 5760, 64),
    "WRN-28-10 conv, first stage": (160, 1440, 32),
    "ResNet-50 1 x 1 conv": (512, 1024, 64),
    "one group": (64, 576, 64),
    "MNIST MLP, first layer": (100, 1024, 100),
    "MNIST MLP, hidden layer": (100, 100, 50),
}

# The shapes at which other parametrizations of an orthogonal weight are compared: one group is their constraint.
PEER_SHAPES = ((256, 1152), (64, 64), (256, 256), (512, 512))
# Condition numbers at which the transformation is timed: at the initialization, and in the middle of training.
CONDITIONS = (2.0, 20.0)


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


def bench_transform(*, device: str = "cpu", rounds: int = 21) -> dict[str, Any]:
    """Return times and accuracies of every shape: seconds, ratio to the floor of `10 n N d` operations, errors."""
    where = torch.device(device)
    rows = [
        row
        for label, shape in SHAPES.items()
        for condition in CONDITIONS
        for row in _shape_rows(label, shape, condition, where, rounds)
    ]
    return {"benchmark": "transform", "machine": machine(where), "rounds": rounds, "rows": rows}


def _shape_rows(
    label: str, shape: tuple[int, int, int], condition: float, device: torch.device, rounds: int
) -> list[dict[str, Any]]:
    n, d, group = shape
    paths: dict[str, Callable[[Tensor], Tensor]] = {
        "orthonorm, auto": lambda V: orthonormalize(V, group_size=group, center=True),
        "orthonorm, newton": lambda V: orthonormalize(V, group_size=group, center=True, method="newton"),
        "orthonorm, float64": lambda V: orthonormalize(V, group_size=group, center=True, precision="float64"),
        "loop of SVDs, autograd": lambda V: svd_loop(V, group),
        "batched eigh, autograd": lambda V: eigh_autograd(V, group),
        "five Newton steps, autograd": lambda V: newton_autograd(V, group),
    }
    V = spectrum_matrix(n, d, group, condition=condition).to(device).requires_grad_()
    G = torch.randn(n, d, device=device)
    product, operations = product_rate(device)
    runs = {name: (lambda path=path: torch.autograd.grad(path(V), V, G)) for name, path in paths.items()}
    least = products_and_roots([torch.randn(n // group, group, d, device=device)])
    medians = interleaved_medians({"product": product, "least": least, **runs}, device=device, rounds=rounds)
    floor = 10.0 * n * group * d * medians["product"] / operations
    sizes = group_sizes(n, d, group_size=group)
    hard = spectrum_matrix(n, d, group, condition=1e3).to(device)
    return [
        {
            "layer": label,
            "shape": f"{n} x {d}",
            "group": group,
            "condition": condition,
            "path": name,
            "milliseconds": medians[name] * 1e3,
            "times the floor": medians[name] / floor,
            "products and roots alone": medians["least"] / floor if name == "orthonorm, auto" else None,
            "times the loop of SVDs": medians[name] / medians["loop of SVDs, autograd"],
            "times batched eigh": medians[name] / medians["batched eigh, autograd"],
            "times float64 inside": medians[name] / medians["orthonorm, float64"],
            "error": float(orthogonality_errors(path(V.detach()), sizes).max()),
            "error, condition 1e3": float(orthogonality_errors(path(hard), sizes).max()),
        }
        for name, path in paths.items()
    ]


def products_and_roots(stacks: Sequence[Tensor]) -> Callable[[], None]:
    """Return what one pass cannot do without: five products of each batch's size, and the roots of one size at once."""
    device = stacks[0].device
    Ps = [torch.randn(len(X), X.shape[1], X.shape[1], device=device) for X in stacks]
    sizes, method = {X.shape[1] for X in stacks}, choose_method("auto", device)
    decompose = torch.linalg.eigh if method == "eigh" else METHODS[method].root

    def run() -> None:
        grams = [torch.bmm(X, X.mT) for X in stacks]
        for size in sizes:
            decompose(torch.cat([S for S in grams if S.shape[1] == size]))
        for X, P in zip(stacks, Ps, strict=True):
            torch.bmm(X, X.mT)
            for _ in range(3):
                torch.bmm(P, X)

    return run


def bench_peers(*, device: str = "cpu", rounds: int = 21) -> dict[str, Any]:
    """Return the times of reading an orthogonal weight and its gradient, ours and other libraries' layers."""
    where = torch.device(device)
    rows = [row for shape in PEER_SHAPES for row in _peer_rows(shape, where, rounds)]
    return {"benchmark": "peers", "machine": machine(where), "rounds": rounds, "rows": rows}


def _peer_rows(shape: tuple[int, int], device: torch.device, rounds: int) -> list[dict[str, Any]]:
    n, d = shape
    layers: dict[str, tuple[nn.Module, int]] = {
        "orthonorm, one group (the same constraint)": (OrthogonalLinear(d, n, bias=False, center=False), n),
        "orthonorm, groups of 64 (a weaker constraint)": (
            OrthogonalLinear(d, n, bias=False, center=False, group_size=min(64, n)),
            min(64, n),
        ),
        **{name: (make(), n) for name, make in peer_layers(n, d).items()},
    }
    G = torch.randn(n, d, device=device)
    runs = {}
    for name, (layer, _) in layers.items():
        layer.to(device)
        runs[name] = lambda layer=layer: torch.autograd.grad(_weight(layer), list(layer.parameters()), G)
    alone = products_and_roots([torch.randn(1, n, d, device=device)])
    medians = interleaved_medians({"alone": alone, **runs}, device=device, rounds=rounds)
    return [
        {
            "layer": name,
            "shape": f"{n} x {d}",
            "milliseconds": medians[name] * 1e3,
            "products and roots alone": medians["alone"] * 1e3 if name == next(iter(layers)) else None,
            "times ours, one group": medians[name] / medians[next(iter(layers))],
            "times ours, groups of 64": medians[name] / medians[list(layers)[1]],
            "error within a group": float(orthogonality_errors(_weight(layer).detach(), (size,) * (n // size)).max()),
        }
        for name, (layer, size) in layers.items()
    ]


def _weight(layer: nn.Module) -> Tensor:
    return getattr(layer, "weight")  # noqa: B009  (a parametrized weight is a property)
