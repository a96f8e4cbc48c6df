"""Dependent rows give a finite weight and gradient; NaN and infinity stay in their group."""

import math

import pytest
import torch
from torch import Tensor

from orthonorm.functional import inverse_sqrt, orthonormalize
from spectra import log_spaced, matrix


def zero_row(V: Tensor) -> Tensor:
    V[2] = 0
    return V


def duplicates(V: Tensor) -> Tensor:
    V[3] = V[1]
    return V


def opposite(V: Tensor) -> Tensor:
    V[3] = -2 * V[1]
    return V


def constant_row(V: Tensor) -> Tensor:
    V[0] = 0.1
    return V


def all_constant(V: Tensor) -> Tensor:
    return V[:, :1].expand_as(V).clone()


def all_zero(V: Tensor) -> Tensor:
    return torch.zeros_like(V)


def all_equal(V: Tensor) -> Tensor:
    return V[:1].expand_as(V).clone()


def rank_two(V: Tensor) -> Tensor:
    return V[:, :2] @ V[:2]


LOSSES = [zero_row, duplicates, opposite, constant_row, all_constant, all_zero, all_equal, rank_two]


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("lose", LOSSES, ids=lambda f: f.__name__)
def test_weight_and_gradient_are_finite(lose, dtype: torch.dtype, size: float, center: bool, method: str):
    V = (size * lose(torch.randn(6, 9, dtype=dtype))).requires_grad_()
    W = orthonormalize(V, center=center, method=method)
    assert W.isfinite().all()
    assert torch.linalg.svdvals(W.detach().double()).max() <= 1 + 1e-5
    (gradient,) = torch.autograd.grad(W, V, torch.randn(6, 9, dtype=dtype))
    assert gradient.isfinite().all()


def test_a_zero_row_stays_zero_and_the_others_are_those_without_it(center: bool, method: str):
    V = zero_row(torch.randn(6, 9, dtype=torch.float64))
    rest = [0, 1, 3, 4, 5]
    W = orthonormalize(V, center=center, method=method)
    assert W[2].abs().max() <= 1e-8
    expected = orthonormalize(V[rest], center=center, method=method)
    torch.testing.assert_close(W[rest], expected, rtol=0, atol=1e-11)


def test_the_directions_that_are_left_are_orthonormal(center: bool, method: str):
    # Three pairs of equal rows: W is a partial isometry of rank 3, the polar factor of V on its own row space.
    V = torch.randn(3, 9, dtype=torch.float64).repeat_interleave(2, 0)
    W = orthonormalize(V, center=center, method=method)
    expected = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(torch.linalg.svdvals(W), expected, rtol=0, atol=1e-7)
    half = orthonormalize(V[::2], center=center, method=method)
    # Products of matrices alone resolve what is left to 1e-3 where directions are lost, and to 1e-11 where none is.
    atol = 1e-7 if method == "eigh" else 1e-3
    torch.testing.assert_close(W[::2], half / math.sqrt(2), rtol=0, atol=atol)


def test_a_group_that_lost_rank_leaves_the_others_alone(center: bool, method: str):
    V = torch.randn(6, 9, dtype=torch.float64)
    deficient = V.clone()
    deficient[1] = deficient[0]
    results = [orthonormalize(X, group_size=3, center=center, method=method) for X in (V, deficient)]
    torch.testing.assert_close(results[1][3:], results[0][3:], rtol=0, atol=1e-13)


@pytest.mark.parametrize("condition", [1e9, 1e12])
def test_beyond_what_a_gram_matrix_holds(condition: float, center: bool, method: str):
    V = matrix(log_spaced(12, condition), 20, center=center).requires_grad_()
    W = orthonormalize(V, center=center, method=method)
    assert torch.linalg.svdvals(W.detach()).max() <= 1 + 1e-5
    # What is lost comes out small, in proportion to what it was; by Newton's method up to seven times as large. The
    # step that polishes float64 multiplies small singular values by 1.5.
    floor = 1024 * torch.finfo(torch.float64).eps
    left = torch.linalg.svdvals(W.detach()).min() * condition * floor**0.5
    assert 1 < left < 1.51 * (1 if method == "eigh" else 7)
    assert torch.autograd.grad(W.sum(), V)[0].isfinite().all()


@pytest.mark.parametrize("lost", [1, 3])
def test_inverse_sqrt_counts_what_is_lost_as_the_relative_floor(lost: int, method: str):
    s = torch.tensor([4.0, 3.0, 2.0, 1.0], dtype=torch.float64)
    s[4 - lost :] = 0
    p = inverse_sqrt(torch.diag(s), method=method).diagonal()
    torch.testing.assert_close(p[: 4 - lost], s[: 4 - lost].rsqrt(), rtol=1e-10, atol=0)
    floor = 1024 * torch.finfo(torch.float64).eps
    ratio = p[4 - lost :] * (floor * 4) ** 0.5
    assert ((ratio > 0.99) & (ratio < 7)).all() if method != "eigh" else (ratio - 1).abs().max() < 1e-10


def test_inverse_sqrt_of_zero_is_the_identity(method: str):
    P = inverse_sqrt(torch.zeros(2, 3, 3), method=method)
    torch.testing.assert_close(P, torch.eye(3).expand(2, 3, 3))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_what_is_not_finite_stays_in_its_group(dtype: torch.dtype, bad: float, center: bool, method: str):
    V, G = torch.randn(2, 2, 9, 12, dtype=dtype)
    broken = V.clone()
    broken[1, 4, 2] = bad
    results = []
    for X in (V, broken):
        X.requires_grad_()
        W = orthonormalize(X, group_size=3, center=center, method=method)
        results.append((W.detach(), torch.autograd.grad(W, X, G)[0]))
    hit = torch.zeros(2, 9, 12, dtype=torch.bool)
    hit[1, 3:6] = True
    for right, actual in zip(*results, strict=True):
        assert torch.equal(actual.isnan(), hit)
        torch.testing.assert_close(actual[~hit], right[~hit], rtol=0, atol=32 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("bad", [math.nan, math.inf], ids=str)
def test_inverse_sqrt_of_what_is_not_finite(bad: float, method: str):
    A = torch.randn(3, 4, 6)
    Sigma = A @ A.mT
    right = inverse_sqrt(Sigma, method=method)
    Sigma[1, 2, 0] = bad
    P = inverse_sqrt(Sigma, method=method)
    assert P[1].isnan().all()
    torch.testing.assert_close(P[[0, 2]], right[[0, 2]])


def test_a_gradient_that_is_not_finite_stays_in_its_group(center: bool, method: str):
    V = torch.randn(6, 8, dtype=torch.float64, requires_grad=True)
    G = torch.randn(6, 8, dtype=torch.float64)
    W = orthonormalize(V, group_size=3, center=center, method=method)
    (expected,) = torch.autograd.grad(W, V, G, retain_graph=True)
    G[4, 1] = math.nan
    (gradient,) = torch.autograd.grad(W, V, G)
    assert gradient[3:].isnan().any()
    torch.testing.assert_close(gradient[:3], expected[:3], rtol=0, atol=1e-13)
