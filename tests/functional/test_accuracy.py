"""Rows are orthonormal to the precision of the dtype at condition numbers up to 1e3, computed in float64."""

import pytest
import torch

from orthonorm.functional import inverse_sqrt, orthonormalize
from orthonorm.functional._methods import METHODS
from orthonorm.functional._orthogonality import orthogonality_errors
from spectra import SPECTRA, matrix

BAD = ["log-spaced", "one large", "one small", "two-level"]
# Of float32 weights with precision="float64"; test_float32.py has the bounds of the default.
FLOAT32 = 1e-6


def worst_error(W: torch.Tensor) -> float:
    return orthogonality_errors(W).max().item()


@pytest.mark.parametrize("means", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("name", BAD)
def test_float32_at_condition_1e3_in_64_rows(name: str, means: float, method: str):
    values = SPECTRA[name](64, 1e3)
    V = torch.stack([matrix(values, 96, means=means, seed=seed) for seed in range(20)]).float()
    assert worst_error(orthonormalize(V, center=True, method=method, precision="float64")) <= FLOAT32


@pytest.mark.parametrize("n", [256, 512])
@pytest.mark.parametrize("name", BAD)
def test_float32_at_condition_1e3_in_many_rows(name: str, n: int, method: str):
    V = matrix(SPECTRA[name](n, 1e3), n + 32, means=10.0).float()
    assert worst_error(orthonormalize(V, center=True, method=method, precision="float64")) <= FLOAT32


@pytest.mark.parametrize("name", BAD)
def test_float32_uncentred_square(name: str, method: str):
    V = matrix(SPECTRA[name](64, 1e3), 64, center=False).float()
    assert worst_error(orthonormalize(V, center=False, method=method, precision="float64")) <= FLOAT32


@pytest.mark.parametrize("means", [0.0, 10.0])
@pytest.mark.parametrize("n", [64, 256])
@pytest.mark.parametrize("name", BAD)
def test_float64_at_condition_1e3(name: str, n: int, means: float, method: str):
    V = matrix(SPECTRA[name](n, 1e3), n + 32, means=means)
    assert worst_error(orthonormalize(V, center=True, method=method)) <= 1e-13


@pytest.mark.parametrize("seed", range(5))
def test_a_square_gaussian_is_orthonormal(seed: int, method: str):
    # Cases, row 4: five steps of an unscaled Newton iteration leave an error of 0.38 here.
    V = torch.randn(64, 64, generator=torch.Generator().manual_seed(seed))
    assert worst_error(orthonormalize(V, center=False, method=method, precision="float64")) <= FLOAT32


@pytest.mark.parametrize("size", [1e-300, 1e300, 1.7e308])
def test_inverse_sqrt_at_the_ends_of_the_range_of_float64(size: float, method: str):
    # Of the largest, neither Sigma + Sigma^T nor the sum of the entries is a number.
    Sigma = torch.tensor([[1.0, 0.4], [0.4, 0.8]], dtype=torch.float64)
    P = inverse_sqrt(Sigma * size, method=method) * size**0.5
    torch.testing.assert_close(P @ Sigma @ P, torch.eye(2, dtype=torch.float64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", SPECTRA)
def test_inverse_sqrt_of_a_known_spectrum(name: str, method: str):
    values = SPECTRA[name](48, 1e2)
    generator = torch.Generator().manual_seed(1)
    U = torch.linalg.qr(torch.randn(48, 48, generator=generator, dtype=torch.float64))[0]
    Sigma, expected = U * values**2 @ U.T, U / values @ U.T
    P = inverse_sqrt(Sigma, method=method)
    assert (P - expected).norm() <= 1e-10 * expected.norm()
    assert (P @ Sigma @ P - torch.eye(48, dtype=torch.float64)).abs().max() <= 1e-10
    assert (P - P.T).abs().max() <= 1e-12 * P.abs().max()


@pytest.mark.parametrize(("condition", "atol"), [(1e2, 1e-11), (1e3, 1e-9)])
def test_methods_agree(condition: float, atol: float, center: bool):
    V = matrix(SPECTRA["log-spaced"](32, condition), 64, center=center)
    first, *others = [orthonormalize(V, center=center, method=method) for method in METHODS]
    assert others
    for W in others:
        torch.testing.assert_close(W, first, rtol=0, atol=atol)
