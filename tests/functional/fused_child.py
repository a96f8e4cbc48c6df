"""The kernels of the method "fused", run on the CPU by Triton's interpreter: what test_fused.py starts in a process.

The interpreter must be on before Triton is imported, and takes a third of a second for a matrix.
"""

import pytest
import torch
from torch import Tensor

import oracle
from orthonorm.functional import inverse_sqrt, orthonormalize
from orthonorm.functional._inverse_sqrt import lyapunov, root
from orthonorm.functional._methods import METHODS
from orthonorm.functional._orthogonality import orthogonality_errors
from orthonorm.functional.fused._inverse_sqrt import kernel_takes
from orthonorm.functional.fused._launch import lyapunov_operator, root_operator
from spectra import SPECTRA, matrix, orthonormal_rows

# torch's own: what it is about to drop or to rename inside itself.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")

# The eigenvalues below need no smaller interval, nor more steps.
FLOOR, STEPS = 1e-3, 9


def symmetric(n: int, values: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix with the given eigenvalues, and its inverse square root."""
    U = orthonormal_rows(n, n, torch.Generator().manual_seed(n))
    return U.T * values @ U, U.T * values.rsqrt() @ U


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-11) -> bool:
    return bool((actual - expected).norm() <= tolerance * expected.norm())


def test_the_kernels_are_what_runs():
    assert kernel_takes(torch.eye(128, dtype=torch.float64))
    assert not kernel_takes(torch.eye(129, dtype=torch.float64))
    assert not kernel_takes(torch.eye(4))
    assert not kernel_takes(torch.empty(0, 4, 4, dtype=torch.float64))


@pytest.mark.parametrize(("n", "name"), list(zip([1, 3, 16, 33, 64], SPECTRA, strict=False)))
def test_the_root_of_a_known_spectrum(n: int, name: str):
    Sigma, expected = symmetric(n, SPECTRA[name](n, 1e2) ** 2)
    P, basis, numbers = root(Sigma, "fused")
    assert close(P, expected)
    assert torch.equal(P, P.T)
    assert close(numbers, expected.norm())
    assert basis.shape == P.shape


@pytest.mark.parametrize("n", [100, 128])
def test_matrices_of_four_tiles(n: int):
    Sigma, P = symmetric(n, torch.linspace(0.25, 1, n, dtype=torch.float64))
    actual, bound = root_operator(Sigma, FLOOR, STEPS)
    assert close(actual, P)
    Y = torch.randn(n, n, dtype=torch.float64)
    if n == 100:
        assert close(lyapunov_operator(P, P @ Y + Y @ P, bound, False, FLOOR, STEPS), Y)
    else:
        A = torch.randn(n, n, dtype=torch.float64)
        _, basis, numbers = METHODS["eigh"].root(Sigma)
        expected = METHODS["eigh"].adjoint(P, A, basis, numbers)
        assert close(lyapunov_operator(P, A, bound, True, FLOOR, STEPS), expected)


@pytest.mark.parametrize("n", [3, 33])
def test_the_gradient_is_the_papers(n: int):
    V = matrix(SPECTRA["log-spaced"](n, 30.0), 2 * n, means=0.5).requires_grad_()
    G = torch.randn(n, 2 * n, dtype=torch.float64)
    W = orthonormalize(V, method="fused")
    assert close(W, oracle.forward(V.detach()))
    (grad,) = torch.autograd.grad(W, V, G)
    assert close(grad, oracle.backward(V.detach(), G), 1e-9)


def test_float32_at_condition_1e3():
    V = torch.stack([matrix(SPECTRA[name](64, 1e3), 96, means=1.0) for name in ("log-spaced", "two-level")]).float()
    assert orthogonality_errors(orthonormalize(V, method="fused")).max() <= 1e-6


def test_rank_loss_is_met_as_by_newton():
    V = torch.randn(3, 9, dtype=torch.float64).repeat_interleave(2, 0)
    W = orthonormalize(V, method="fused")
    assert torch.linalg.svdvals(W).max() <= 1 + 1e-7
    torch.testing.assert_close(W, orthonormalize(V, method="newton"), rtol=0, atol=1e-3)


def test_a_matrix_that_is_not_finite_stays_by_itself():
    Sigma, Q = (
        torch.stack([symmetric(5, torch.rand(5, dtype=torch.float64) + 0.5)[0]] * 3),
        torch.randn(3, 5, 5).double(),
    )
    Sigma[1, 2, 3] = torch.nan
    P, bound = root_operator(Sigma, FLOOR, STEPS)
    Y = lyapunov_operator(P, Q, bound, True, FLOOR, STEPS)
    assert P[1].isnan().all()
    assert Y[1].isnan().all()
    # Each of the others is what it is alone, to the last bit.
    alone, number = root_operator(Sigma[2], FLOOR, STEPS)
    assert torch.equal(P[[0, 2]], alone.expand(2, 5, 5))
    assert torch.equal(Y[2], lyapunov_operator(alone, Q[2], number, True, FLOOR, STEPS))


def test_batches_that_are_not_contiguous():
    Sigma = torch.stack([symmetric(n, torch.rand(4, dtype=torch.float64) + 0.5)[0] for n in (4, 4)], -1)
    P = inverse_sqrt(Sigma.permute(2, 1, 0).unsqueeze(1), method="fused")
    assert close(P, inverse_sqrt(Sigma.permute(2, 0, 1).unsqueeze(1), method="eigh"))
    Q = torch.randn(4, 4, dtype=torch.float64).mT
    assert Q.T.is_contiguous()
    p, basis, numbers = root(Sigma[..., 0], "fused")
    Y = lyapunov(p, Q, basis, numbers, "fused")
    assert close(p @ Y + Y @ p, Q)


def test_vmap_of_the_operators_is_a_loop():
    Sigma = torch.stack([symmetric(3, torch.rand(3, dtype=torch.float64) + 0.5)[0] for _ in range(2)], 1)
    P, bound = torch.vmap(lambda S: root_operator(S, FLOOR, STEPS), in_dims=1)(Sigma)
    assert close(P, inverse_sqrt(Sigma.movedim(1, 0), method="eigh"))
    Q = torch.randn(3, 3, dtype=torch.float64)

    def solve(p: Tensor, q: Tensor, number: Tensor) -> Tensor:
        return lyapunov_operator(p, q, number, False, FLOOR, STEPS)

    Y = torch.vmap(solve, in_dims=(0, None, 0))(P, Q, bound)
    assert close(P @ Y + Y @ P, Q.expand(2, 3, 3))
    (Y,) = torch.vmap(solve, in_dims=(None, 2, None))(P[0], Q.unsqueeze(-1), bound[0])
    assert close(P[0] @ Y + Y @ P[0], Q)


def test_derivatives_of_both_modes_and_of_the_second_order():
    V, dV, G = (torch.randn(3, 7, dtype=torch.float64) for _ in range(3))
    found = []
    for method in ("fused", "eigh"):
        W, dW, *_ = torch.func.jvp(lambda x, method=method: orthonormalize(x, method=method), (V,), (dV,))
        x = V.clone().requires_grad_()
        (grad,) = torch.autograd.grad(orthonormalize(x, method=method), x, G, create_graph=True)
        (second,) = torch.autograd.grad((grad * dV).sum(), x)
        found.append((W, dW, grad, second))
    for actual, expected in zip(*found, strict=True):
        assert close(actual, expected, 1e-9)


def test_compiled_in_one_graph_is_eager():
    V, G = torch.randn(1, 3, 7, requires_grad=True), torch.randn(1, 3, 7)

    def gradient(weight: Tensor) -> tuple[Tensor, Tensor]:
        return weight.detach(), torch.autograd.grad(weight, V, G)[0]

    compiled = torch.compile(lambda x: orthonormalize(x, method="fused"), fullgraph=True, backend="aot_eager")
    for actual, expected in zip(gradient(compiled(V)), gradient(orthonormalize(V, method="fused")), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-6)


def test_the_operators_keep_what_they_declare():
    Sigma, P = symmetric(3, torch.tensor([0.5, 0.75, 1.0], dtype=torch.float64))
    kept = ("test_schema", "test_faketensor")
    torch.library.opcheck(root_operator, (Sigma.expand(2, 3, 3), FLOOR, 1), test_utils=kept)
    torch.library.opcheck(lyapunov_operator, (P, Sigma, P.new_ones(1), True, FLOOR, 1), test_utils=kept)
