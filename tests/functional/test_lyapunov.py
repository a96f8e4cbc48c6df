"""The solver that every derivative is made of, against the linear system of its n^2 unknowns."""

import pytest
import torch
from torch import Tensor

from orthonorm.functional._inverse_sqrt import lyapunov, root
from spectra import SPECTRA, orthonormal_rows


def by_kronecker_product(P: Tensor, Q: Tensor) -> Tensor:
    """Y with P Y + Y P = Q, from (P x I + I x P) vec(Y) = vec(Q)."""
    eye = torch.eye(len(P), dtype=P.dtype)
    return torch.linalg.solve(torch.kron(P, eye) + torch.kron(eye, P), Q.flatten()).reshape(Q.shape)


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "any"])
@pytest.mark.parametrize("n", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("name", SPECTRA)
def test_it_solves_the_equation(name: str, n: int, symmetric: bool, method: str):
    U = orthonormal_rows(n, n, torch.Generator().manual_seed(n))
    Sigma = U.T * SPECTRA[name](n, 30.0) ** 2 @ U
    Q = torch.randn(n, n, dtype=torch.float64)
    Q = Q + Q.T if symmetric else Q
    P, basis, numbers = root(Sigma, method)
    expected = by_kronecker_product(P, Q)
    Y = lyapunov(P, Q, basis, numbers, method)
    # Equal eigenvalues are where a Newton iteration may cancel: 2e-10 with the scales that are the fastest.
    assert (Y - expected).norm() <= 1e-12 * expected.norm()


def test_each_matrix_of_a_batch_by_itself(method: str):
    A, Q = torch.randn(2, 3, 4, 4, dtype=torch.float64)
    P, basis, numbers = root(A @ A.mT, method)
    Y = lyapunov(P, Q, basis, numbers, method)
    for p, q, y in zip(P, Q, Y, strict=True):
        torch.testing.assert_close(y, by_kronecker_product(p, q), rtol=1e-9, atol=1e-12)
