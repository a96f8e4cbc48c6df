"""Metrics, projections and samples against the definitions."""

import math

import pytest
import torch

from orthonorm.functional import haar, inner, project, project_tangent, riemannian_gradient
from orthonorm.functional.stiefel._manifold import METRICS


def draw(n: int, d: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """A point and an ordinary gradient."""
    generator = torch.Generator().manual_seed(seed)
    W = haar(n, d, generator=generator, dtype=torch.float64)
    return W, torch.randn(n, d, generator=generator, dtype=torch.float64)


SHAPES = [(1, 1), (1, 6), (3, 7), (5, 5)]


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("metric", METRICS)
def test_gradient_represents_the_differential(metric, n, d):
    W, G = draw(n, d)
    grad = riemannian_gradient(W, G, metric)
    assert (grad @ W.mT + W @ grad.mT).abs().max() < 1e-13
    for seed in range(1, 6):
        X = project_tangent(W, draw(n, d, seed)[1])
        torch.testing.assert_close(inner(W, grad, X, metric), (G * X).sum(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
def test_inner_is_the_trace_formula(metric):
    W, X = draw(3, 7)
    Y = draw(3, 7, 1)[1]
    middle = torch.eye(7, dtype=W.dtype) - (0.5 * W.mT @ W if metric == "canonical" else 0)
    torch.testing.assert_close(inner(W, X, Y, metric), torch.trace(X @ middle @ Y.mT))


def test_the_paper_exchanges_the_two_metrics():
    # Appendix formulas in its column convention; "Euclidean" first.
    W, G = draw(3, 7)
    w, g = W.mT, G.mT
    paper_euclidean = g - w @ g.mT @ w
    paper_canonical = g - 0.5 * (w @ w.mT @ g + w @ g.mT @ w)
    torch.testing.assert_close(riemannian_gradient(W, G, "canonical").mT, paper_euclidean)
    torch.testing.assert_close(riemannian_gradient(W, G, "euclidean").mT, paper_canonical)


def test_tangent_projection_is_orthogonal_and_idempotent():
    W, X = draw(3, 7)
    P = project_tangent(W, X)
    assert (P @ W.mT + W @ P.mT).abs().max() < 1e-14
    torch.testing.assert_close(project_tangent(W, P), P, rtol=0, atol=1e-14)
    other = project_tangent(W, draw(3, 7, 1)[1])
    assert ((X - P) * other).sum().abs() < 1e-13


def test_projection_is_nearest_and_idempotent():
    V = draw(3, 7)[1]
    W = project(V)
    torch.testing.assert_close(W @ W.mT, torch.eye(3, dtype=W.dtype), rtol=0, atol=1e-14)
    torch.testing.assert_close(project(W), W, rtol=0, atol=1e-14)
    # Von Neumann: the least distance to an orthonormal matrix is |s - 1|.
    least = (torch.linalg.svdvals(V) - 1).norm()
    torch.testing.assert_close((V - W).norm(), least)


def test_projection_completes_a_matrix_without_full_rank():
    V = torch.zeros(2, 3, 5)
    V[1, 0, 2] = -4.0
    W = project(V)
    torch.testing.assert_close(W @ W.mT, torch.eye(3).expand(2, 3, 3), rtol=0, atol=1e-6)
    torch.testing.assert_close(W[1, 0], torch.tensor([0.0, 0, -1, 0, 0]))


def test_haar_moments():
    # E W_ij = 0, E W_ij^2 = 1/d, E W_11^2 W_12^2 = 1/(d(d+2)), E W_11^2 W_21^2 = 1/(d(d+2)).
    generator, d, draws = torch.Generator().manual_seed(0), 4, 20_000
    V = torch.randn(draws, 2, d, generator=generator, dtype=torch.float64)
    W = torch.stack([haar(2, d, generator=generator, dtype=torch.float64) for _ in range(2000)])
    W = torch.cat([W, project(V)])
    bound = 5 / math.sqrt(len(W))
    assert W.mean(0).abs().max() < bound * d**-0.5
    assert (W.square().mean(0) - 1 / d).abs().max() < bound * 0.25
    fourth = (W[:, 0, 0].square() * W[:, 0, 1].square()).mean()
    assert abs(fourth - 1 / (d * (d + 2))) < bound * 0.1


def test_haar_is_invariant_from_both_sides():
    # A QR factor without the sign convention would give W_11 one sign.
    generator = torch.Generator().manual_seed(1)
    signs = torch.stack([haar(2, 3, generator=generator).sign() for _ in range(400)]).mean(0)
    assert signs.abs().max() < 0.25


def test_haar_follows_its_generator_and_dtype():
    a = haar(3, 5, generator=torch.Generator().manual_seed(3))
    b = haar(3, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert a.dtype == torch.float32
    torch.testing.assert_close(a, b.float(), rtol=0, atol=0)
