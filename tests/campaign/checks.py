"""What the properties of the map share: one run of it, how large its root may be, and what W has to be."""

import math
import os
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import torch
from torch import Tensor

from campaign.cases import Case, Grouped, conditions, parts, singular_values, tolerance
from campaign.figures import Figures
from orthonorm.functional import orthonormalize
from orthonorm.functional._orthogonality import orthogonality_errors

T = TypeVar("T")
TYPECHECK = os.environ.get("ORTHONORM_TYPECHECK", "1") != "0"
WELL = 1e3
SIGMA_EPS = torch.finfo(torch.float64).eps
FLOAT64_FLOOR = math.sqrt(1024 * SIGMA_EPS)
NEWTON_REACH = 7.0  # Note [the relative floor]: how much further Newton's P grows


def bits(X: Tensor) -> Tensor:
    return X.contiguous().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[X.element_size()])


@contextmanager
def nothing_else_changes(*inputs: Tensor) -> Iterator[None]:
    """Assert that inputs keep their bits and versions, and that no generator of random numbers moved."""
    before = [(X, bits(X).clone(), X._version) for X in inputs]
    states = torch.get_rng_state(), random.getstate()
    yield
    for X, copy, version in before:
        assert torch.equal(bits(X), copy)
        assert X._version == version
    assert torch.equal(torch.get_rng_state(), states[0])
    # beartype, where it enforces types, draws from Python's generator which items of a list it looks at.
    assert TYPECHECK or random.getstate() == states[1]


def run(V: Tensor, G: Tensor, case: Case, method: str) -> tuple[Tensor, Tensor]:
    """W and dL/dV for dL/dW = G, and the check that nothing else happened."""
    with nothing_else_changes(V, G):
        X = V.detach().requires_grad_()
        W = orthonormalize(X, method=method, precision="float64", **case.options)
        (gradient,) = torch.autograd.grad(W, X, G)
    assert W.shape == gradient.shape == V.shape
    assert W.dtype == gradient.dtype == V.dtype
    return W.detach(), gradient


def log2_norm(X: Tensor) -> float:
    """log2 |X|, also where the norm itself is no number of the type."""
    if not X.any():
        return -math.inf
    largest = X.double().abs().max()
    return float(largest.log2() + (X.double() / largest).norm().log2()) if largest else -math.inf


def log2_roots(V: Tensor, case: Grouped, spread: float = 1.0) -> list[Tensor]:
    """log2 of |Sigma^{-1/2}| of each group of each matrix: 1 / s_min, or what the relative floor leaves of it."""
    roots = []
    for part, s in zip(parts(V, case), singular_values(V, case), strict=True):
        largest = part.double().abs().amax((-2, -1))
        # Of a group that is constant but for rounding nobody knows more than that its rounding is 1e-18 of it or more.
        known = s[..., 0] > 1e-13
        s_max = torch.where(known, s[..., 0], 1e-18)
        p = torch.where(known, s[..., -1].reciprocal(), math.inf).minimum(spread / (FLOAT64_FLOOR * s_max))
        root = p.log2() - torch.frexp(largest).exponent
        # ... and the root of zero is the identity.
        roots.append(torch.where(known, root, torch.where(largest > 0, root.clamp_min(0.0), 0.0)))
    return roots


def log2_root(V: Tensor, case: Grouped, spread: float = 1.0) -> float:
    """log2 of the largest |Sigma^{-1/2}| of a group."""
    return max((float(root.max()) for root in log2_roots(V, case, spread)), default=-math.inf)


def built(make: Callable[[], T]) -> T:
    """Return what `make` makes, without the warning that rows repeat, which rounding may bring about."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*has lost .* directions")
        return make()


def lost(condition: Tensor, n: int, method: str) -> Tensor:
    """What W loses with Sigma and its root, which in float64 are good to (2 + sqrt n) eps times the condition squared.

    2 eps are those of a product and a sum; an eigendecomposition is right to sqrt n eps of the largest eigenvalue.
    """
    reach = (1.0 if method == "eigh" else NEWTON_REACH) / FLOAT64_FLOOR
    return (2 + math.sqrt(n)) * SIGMA_EPS * condition.clamp_max(reach) ** 2


def check_weight(figures: Figures, name: str, V: Tensor, W: Tensor, case: Case, method: str) -> None:
    eps = torch.finfo(V.dtype).eps
    for part, condition, n in zip(parts(W, case), conditions(V, case), case.sizes, strict=True):
        assert part.isfinite().all()
        spectral = torch.linalg.svdvals(part.double())[..., 0].max().item()
        # In float64 a further step takes off what is lost.
        excess = 0.0 if V.dtype == torch.float64 else lost(condition, n, method).max().item()
        figures.worst(name, "excess", spectral - 1)
        figures.expect(name, spectral - 1, excess + (tolerance(V.dtype, n) if eps > 1e-4 else 1e-6))
        good = condition <= WELL
        if good.any():
            error = orthogonality_errors(part)[good].max().item()
            figures.worst(name, str(V.dtype).removeprefix("torch."), error)
            figures.expect(name, error, tolerance(V.dtype, n))
