"""The stated accuracy of float32 weights, with the values read (eager mode on a CPU) and by two passes of products."""

from functools import partial

import hypothesis
import pytest
import torch
from torch import Tensor

import oracle
from orthonorm.functional import orthonormalize
from orthonorm.functional._orthogonality import orthogonality_errors
from spectra import SPECTRA, log_spaced, matrix, orthonormal_rows

# Torch compiles its own forward-mode rules with it on first use.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

NIGHTLY = hypothesis.settings.get_current_profile_name() == "nightly"
SEEDS = range(20 if NIGHTLY else 2)
SHAPES = [(16, 16), (16, 64), (64, 64), (64, 576)] + ([(256, 288), (512, 512)] if NIGHTLY else [(128, 128)])
EACH_SHAPE = pytest.mark.parametrize(("n", "d"), SHAPES, ids=[f"{n}x{d}" for n, d in SHAPES])
EACH_SPECTRUM = pytest.mark.parametrize("name", ["log-spaced", "two-level", "one small"])


class Errors:
    """The largest errors over seeds: of orthonormality, from the exact W, of the gradient; and the norm beyond 1."""

    def __init__(self, name: str, n: int, d: int, condition: float, method: str) -> None:
        Vs, center = [], n < d
        for seed in SEEDS:
            means = 0.3 if center else 0.0
            Vs.append(matrix(SPECTRA[name](n, condition), d, center=center, means=means, seed=seed))
        V = torch.stack(Vs).float()
        G = torch.randn(V.shape, generator=torch.Generator().manual_seed(1))
        # Each by itself: the worst matrix of a batch decides how all of it is computed.
        runs = [derivative(v, g, center=center, method=method) for v, g in zip(V, G, strict=True)]
        W, gradient = (torch.stack(parts).double() for parts in zip(*runs, strict=True))
        X = V.double() - V.double().mean(-1, keepdim=True) if center else V.double()
        exact = oracle.gradient_of_polar(V.double(), G.double(), center=center)
        self.orthonormality = float(orthogonality_errors(W).max())
        self.distance = float(norms(W - oracle.polar_factor(X)).max()) / n**0.5
        self.gradient = float((norms(gradient - exact) / norms(exact)).max())
        self.excess = float(torch.linalg.svdvals(W).max()) - 1
        self.finite = bool(gradient.isfinite().all())


def norms(X: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(X)


def derivative(V: Tensor, G: Tensor, **options) -> tuple[Tensor, Tensor]:
    V = V.clone().requires_grad_()
    W = orthonormalize(V, **options)
    return W.detach(), torch.autograd.grad(W, V, G)[0]


# On both sides of the two thresholds, at 4 and 25.
@EACH_SHAPE
@EACH_SPECTRUM
@pytest.mark.parametrize("condition", [1.5, 3.9, 4.1, 10.0, 24.0, 26.0, 50.0])
def test_with_the_values_read_weight_and_gradient_are_right_to_1e_5(name: str, n: int, d: int, condition: float):
    errors = Errors(name, n, d, condition, "eigh")
    assert errors.orthonormality <= 1e-5
    assert errors.distance <= 1e-5
    assert errors.gradient <= 1e-5


@EACH_SHAPE
@EACH_SPECTRUM
@pytest.mark.parametrize("condition", [100.0, 1e3])
def test_with_the_values_read_the_weight_is_right_beyond(name: str, n: int, d: int, condition: float):
    errors = Errors(name, n, d, condition, "eigh")
    assert errors.orthonormality <= 1e-6
    assert errors.distance <= 1e-6
    assert errors.gradient <= 1e-6 * condition


@EACH_SHAPE
@EACH_SPECTRUM
@pytest.mark.parametrize(("condition", "bound"), [(2.0, 1e-5), (10.0, 1e-5), (100.0, 2e-4), (1e3, 3e-3)])
def test_two_passes(name: str, n: int, d: int, condition: float, bound: float):
    errors = Errors(name, n, d, condition, "newton")
    assert errors.orthonormality <= 3e-5
    assert errors.distance <= bound
    assert errors.gradient <= bound


@EACH_SHAPE
@EACH_SPECTRUM
@pytest.mark.parametrize("condition", [1e4, 1e6])
def test_two_passes_stay_finite_beyond(name: str, n: int, d: int, condition: float):
    errors = Errors(name, n, d, condition, "newton")
    assert errors.finite
    assert errors.excess <= 1e-3


@pytest.mark.parametrize("condition", [3.0, 20.0, 200.0])
@pytest.mark.parametrize("size", [1e-12, 1e10])
def test_the_size_of_the_matrix_does_not_matter(size: float, condition: float, center: bool, method: str):
    # A power of two, so that the entries of both matrices have the same digits.
    c = 2.0 ** round(torch.tensor(size).log2().item())
    V, G = matrix(log_spaced(32, condition), 48, center=center).float(), torch.randn(32, 48)
    W, gradient = derivative(V, G, center=center, method=method)
    scaled, scaled_gradient = derivative(c * V, G, center=center, method=method)
    assert orthogonality_errors(scaled).max() <= 3e-5
    torch.testing.assert_close(scaled, W, rtol=0, atol=1e-6)
    assert norms(scaled_gradient * c - gradient) <= 1e-5 * norms(gradient)


@pytest.mark.parametrize("means", [1.0, 30.0, 1e3, 1e5])
def test_large_row_means(means: float, method: str):
    V, G = matrix(log_spaced(32, 3.0), 200, means=means).float(), torch.randn(32, 200)
    W, gradient = derivative(V, G, center=True, method=method)
    # Against the matrix as it was rounded: its rows have lost digits to the mean, the transformation may lose no more.
    X = V.double() - V.double().mean(1, keepdim=True)
    exact = oracle.gradient_of_polar(V.double(), G.double(), center=True)
    assert norms(W.double() - oracle.polar_factor(X)) <= 1e-5 * 32**0.5
    assert norms(gradient.double() - exact) <= 1e-5 * norms(exact)
    assert orthogonality_errors(W).max() <= 1e-5
    assert W.mean(1).abs().max() <= 1e-6


@pytest.mark.parametrize("condition", [2.0, 15.0])
def test_second_derivatives_and_forward_mode(condition: float, center: bool, method: str):
    V = matrix(log_spaced(8, condition), 20, center=center)
    coefficients = torch.randn(8, 20, dtype=torch.float64)

    def loss(V: Tensor) -> Tensor:
        W = orthonormalize(V, center=center, method=method)
        return (coefficients.to(V) * (3 * W).sin()).sum()

    def penalty(V: Tensor) -> Tensor:
        (first,) = torch.autograd.grad(loss(V), V, create_graph=True)
        return first.square().sum()

    wide, narrow = V.clone().requires_grad_(), V.float().requires_grad_()
    exact, got = (torch.autograd.grad(penalty(X), X)[0] for X in (wide, narrow))
    assert norms(got.double() - exact) <= 2e-5 * condition * norms(exact)
    D = torch.randn(8, 20, dtype=torch.float64)
    exact, got = (torch.func.jvp(torch.func.grad(loss), (X.detach(),), (D.to(X),))[1] for X in (wide, narrow))
    assert norms(got.double() - exact) <= 2e-5 * condition * norms(exact)
    phi = partial(orthonormalize, center=center, method=method)
    exact, got = (torch.func.jvp(phi, (X.detach(),), (D.to(X),))[1] for X in (wide, narrow))
    assert norms(got.double() - exact) <= 2e-6 * condition * norms(exact)


@pytest.mark.parametrize("condition", [2.0, 15.0, 100.0])
def test_vmap_is_a_loop(condition: float, center: bool, method: str):
    V = torch.stack([matrix(log_spaced(8, condition), 20, center=center, seed=seed) for seed in range(3)]).float()
    G = torch.randn(3, 8, 20)

    def both(v: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
        W, pull, *_ = torch.func.vjp(partial(orthonormalize, center=center, method=method), v)
        return W, pull(g)[0]

    mapped = torch.vmap(both)(V, G)
    looped = [torch.stack(parts) for parts in zip(*(both(v, g) for v, g in zip(V, G, strict=True)), strict=True)]
    for actual, expected in zip(mapped, looped, strict=True):
        assert norms(actual - expected).max() <= 1e-5 * norms(expected).max()


def test_the_worst_matrix_decides_for_its_batch_and_harms_no_other(center: bool):
    V = torch.stack([matrix(log_spaced(8, c), 20, center=center) for c in (2.0, 1e4)]).float()
    W, alone = orthonormalize(V, center=center), orthonormalize(V[0], center=center)
    assert orthogonality_errors(W).max() <= 1e-6
    torch.testing.assert_close(W[0], alone, rtol=0, atol=1e-5)
    assert orthogonality_errors(alone).max() <= 1e-5


@pytest.mark.nightly
@pytest.mark.compiled
@pytest.mark.parametrize("condition", [2.0, 300.0])
def test_compiled_float32_is_two_passes(condition: float, center: bool):
    torch.compiler.reset()
    V, G = matrix(log_spaced(8, condition), 20, center=center).float(), torch.randn(8, 20)
    compiled = torch.compile(partial(orthonormalize, center=center), fullgraph=True, backend="aot_eager")
    X = V.clone().requires_grad_()
    W = compiled(X)
    expected, gradient = derivative(V, G, center=center, method="newton")
    torch.testing.assert_close(W, expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.autograd.grad(W, X, G)[0], gradient, rtol=1e-4, atol=1e-4)


@pytest.mark.nightly
@pytest.mark.compiled
def test_compiled_with_reduced_products_is_float64(center: bool):
    torch.compiler.reset()
    V = orthonormal_rows(8, 20, torch.Generator().manual_seed(0)) + 0.3 * torch.randn(8, 20, dtype=torch.float64)
    expected = orthonormalize(V, center=center)
    compiled = torch.compile(partial(orthonormalize, center=center), fullgraph=True, backend="aot_eager")
    errors = {}
    before = torch.get_float32_matmul_precision()
    try:
        for setting in ("highest", "high"):
            torch.set_float32_matmul_precision(setting)
            errors[setting] = (compiled(V.float()).double() - expected).abs().max()
    finally:
        torch.set_float32_matmul_precision(before)
    assert errors["high"] < 6e-8 < errors["highest"] < 1e-5
