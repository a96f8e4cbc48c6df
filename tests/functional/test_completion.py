"""A deficient start is completed: full rank, the directions that were there kept, the same on every machine."""

import pytest
import torch
from torch import Tensor

import oracle
from orthonorm.functional import orthonormalize
from orthonorm.functional._completion import complete_rank, fixed_rows
from spectra import matrix

SHAPES = [(1, 2), (2, 3), (3, 4), (5, 9), (8, 64), (63, 64)]


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_fixed_rows_are_orthonormal_and_of_zero_mean(n: int, d: int):
    F = fixed_rows(n, d, dtype=torch.float64)
    torch.testing.assert_close(F @ F.T, torch.eye(n, dtype=torch.float64), rtol=0, atol=1e-13)
    assert F.mean(1).abs().max() <= 1e-15


@pytest.mark.parametrize("d", [1, 2, 3, 16])
def test_a_square_of_fixed_rows_is_orthogonal(d: int):
    F = fixed_rows(d, d, dtype=torch.float64)
    torch.testing.assert_close(F @ F.T, torch.eye(d, dtype=torch.float64), rtol=0, atol=1e-13)


def test_fixed_rows_depend_on_the_shape_only():
    torch.manual_seed(1)
    first = fixed_rows(5, 9, dtype=torch.float64)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    assert torch.equal(fixed_rows(5, 9, dtype=torch.float64), first)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(fixed_rows(3, 9, dtype=torch.float64), first[:3])


def singular_values(V: Tensor, center: bool) -> Tensor:
    return torch.linalg.svdvals(V - V.mean(1, keepdim=True) if center else V)


def test_a_matrix_of_full_rank_is_returned_as_it_is(center: bool):
    V = torch.randn(5, 8)
    completed, lost = complete_rank(V, center=center)
    assert completed is V
    assert lost == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_matrix_that_is_not_finite_is_returned_as_it_is(value: float, center: bool):
    V = torch.randn(5, 8)
    V[1, 1] = value
    completed, lost = complete_rank(V, center=center)
    assert completed is V
    assert lost == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("lost", [1, 3, 5])
def test_what_is_lost_is_filled(lost: int, dtype: torch.dtype, center: bool):
    values = torch.tensor([3.0, 2.0, 1.5, 1.2, 1.0], dtype=torch.float64)
    values[5 - lost :] = 0
    V = matrix(values, 8, center=center, means=1.0 if center else 0.0).to(dtype)
    completed, found = complete_rank(V, center=center)
    assert found == lost
    assert completed.dtype == dtype
    assert singular_values(completed, center).min() >= 0.5
    assert complete_rank(completed, center=center) == (completed, 0)


@pytest.mark.parametrize("lost", [1, 3, 5])
def test_the_directions_that_were_there_are_kept(lost: int, center: bool, method: str):
    values = torch.tensor([3.0, 2.0, 1.5, 1.2, 1.0], dtype=torch.float64)
    values[5 - lost :] = 0
    V = matrix(values, 8, center=center)
    U, _, Rt = torch.linalg.svd(V, full_matrices=False)
    kept = slice(0, 5 - lost)
    W = orthonormalize(complete_rank(V, center=center)[0], center=center, method=method)
    torch.testing.assert_close(U[:, kept].T @ W, Rt[kept], rtol=0, atol=1e-10)
    torch.testing.assert_close(W @ W.T, torch.eye(5, dtype=torch.float64), rtol=0, atol=1e-13)


def test_row_means_are_kept():
    V = torch.randn(4, 9, dtype=torch.float64)
    V[2] = 5.0
    completed, lost = complete_rank(V, center=True)
    assert lost == 1
    torch.testing.assert_close(completed.mean(1), V.mean(1))


def test_zeros_become_the_fixed_rows(center: bool, method: str):
    completed, lost = complete_rank(torch.zeros(4, 9, dtype=torch.float64), center=center)
    assert lost == 4
    W = orthonormalize(completed, center=center, method=method)
    torch.testing.assert_close(W, fixed_rows(4, 9, dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_completion_is_the_nearest_to_the_fixed_rows():
    # Of all orthonormal B outside the rows of V, the nearest to U_0^T F: no turned one is nearer.
    V = torch.randn(5, 9, dtype=torch.float64)
    V[3] = V[4] = 0
    W = oracle.polar_factor(complete_rank(V, center=False)[0])
    F = fixed_rows(5, 9, dtype=torch.float64)
    distance = (W[3:] - F[3:]).norm()
    for angle in [-0.5, -1e-2, 1e-2, 0.5, 3.0]:
        c, s = torch.tensor(angle).cos(), torch.tensor(angle).sin()
        turned = torch.stack([c * W[3] - s * W[4], s * W[3] + c * W[4]])
        assert (turned - F[3:]).norm() > distance


@pytest.mark.parametrize("size", [1e-20, 1e20])
def test_size_does_not_matter(size: float, center: bool):
    V = torch.randn(4, 9, dtype=torch.float64)
    V[1] = V[0]
    completed, lost = complete_rank(size * V, center=center)
    expected, _ = complete_rank(V, center=center)
    assert lost == 1
    W, X = (orthonormalize(Y, center=center) for Y in (completed, expected))
    torch.testing.assert_close(W, X, rtol=0, atol=1e-11)


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300, 1.7e308])
@pytest.mark.parametrize("lost", [0, 2])
def test_the_size_decides_nothing(size: float, lost: int, center: bool):
    # Found by the campaign: from 1e154 on squares of float64 are infinite, and LAPACK raised.
    V = torch.randn(5, 8, dtype=torch.float64)
    V[5 - lost :] = 0
    V /= V.abs().max()
    completed, count = complete_rank(V * size, center=center)
    assert count == lost
    reference = complete_rank(V, center=center)[0]
    # Completed rows may have larger entries than those that were there, which the largest of all leave no room for.
    torch.testing.assert_close(completed / size, reference, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [64, 256])
def test_a_square_gaussian_start_has_lost_nothing(n: int):
    # Its least singular value is 1 / (2 n) of the largest, and one in a thousand a thousand times smaller: no rounding.
    values = torch.linspace(2.0, 0.5, n, dtype=torch.float64)
    values[-1] = 3e-6
    assert complete_rank(matrix(values, n, center=False).float(), center=False)[1] == 0


@pytest.mark.parametrize("mean", [0.0, 1.0, 100.0])
def test_what_rounding_alone_has_left_of_a_direction_is_lost(mean: float):
    values = torch.tensor([1.5, 1.2, 1.0, 0.0, 0.0], dtype=torch.float64)
    rounded = (matrix(values, 300) + mean).float()
    assert singular_values(rounded.double(), True)[3:].min() > 1e-9 * mean
    assert complete_rank(rounded, center=True)[1] == 2
    assert complete_rank(torch.full((4, 9), 0.1) + 1e-9 * torch.randn(4, 9), center=True)[1] == 4
