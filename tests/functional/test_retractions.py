"""Retractions against LAPACK, the textbook formulas and the manifold itself."""

import pytest
import torch
from torch import Tensor

from orthonorm.functional import (
    haar,
    project,
    project_tangent,
    retract_cayley,
    retract_polar,
    retract_qr,
    riemannian_gradient,
)
from orthonorm.functional.stiefel._retractions import LEGAL_PAIRS, RETRACTIONS

PROJECTIONS = {"qr": retract_qr, "polar": retract_polar}


def draw(n: int, d: int, count: int = 3, dtype=torch.float64) -> tuple[Tensor, Tensor]:
    """Points and steps of size one."""
    generator = torch.Generator().manual_seed(n * 100 + d)
    W = torch.stack([haar(n, d, generator=generator, dtype=dtype) for _ in range(count)])
    return W, torch.randn(count, n, d, generator=generator, dtype=torch.float64).to(dtype)


def householder(V: Tensor) -> Tensor:
    """The orthogonal factor by LAPACK with the signs of a positive diagonal."""
    Q, R = torch.linalg.qr(V.double().mT)
    return (Q * R.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)).mT


def off_manifold(W: Tensor) -> float:
    """Largest entry of |W W^T - I|, in float64."""
    wide = W.double()
    return (wide @ wide.mT - torch.eye(W.shape[-2], dtype=wide.dtype)).abs().max().item()


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 1e2, 1e4, 1e20])
@pytest.mark.parametrize(("n", "d"), [(1, 1), (1, 6), (4, 9), (5, 5)])
@pytest.mark.parametrize("name", RETRACTIONS)
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-13), (torch.float32, 3e-6)])
def test_lands_on_the_manifold_however_long_the_step(name, n, d, size, dtype, bound):
    W, Z = draw(n, d, dtype=dtype)
    end = RETRACTIONS[name](W, project_tangent(W, Z), size)
    assert end.dtype == dtype
    assert off_manifold(end) < bound


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e2, 1e4])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float64, 1e-11), (torch.float32, 3e-5)])
def test_qr_is_the_factor_with_a_positive_diagonal(size, dtype, bound):
    W, Z = draw(4, 9, dtype=dtype)
    # Any step, not only a tangent one: W + t Z has condition numbers up to 40 here.
    torch.testing.assert_close(retract_qr(W, Z, size).double(), householder(W + size * Z), rtol=0, atol=bound)


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize(
    ("dtype", "length", "bound"), [(torch.float32, 1e3, 2e-3), (torch.float64, 1e6, 1e-8), (torch.float64, 1e10, 1e-4)]
)
def test_agrees_with_lapack_at_a_chosen_condition_number(name, dtype, length, bound):
    # A tangent step of rank 1: W + Z has the step's length for a condition number, its Gram matrix the square.
    reference = {"qr": householder, "polar": lambda V: project(V.double())}[name]
    W, _ = draw(4, 9, dtype=dtype)
    u, v = torch.ones(4, 1, dtype=dtype), torch.linspace(-1, 1, 9, dtype=dtype)[None]
    Z = project_tangent(W, (u @ v).expand_as(W).contiguous())
    end = PROJECTIONS[name](W, Z, length)
    torch.testing.assert_close(end.double(), reference(W + length * Z), rtol=0, atol=bound)
    assert off_manifold(end) < (3e-6 if dtype == torch.float32 else 1e-13)


def test_polar_is_the_nearest_point():
    W, Z = draw(4, 9)
    torch.testing.assert_close(retract_polar(W, Z), project(W + Z), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("n", "d"), [(1, 6), (3, 7), (4, 6), (5, 5)])
@pytest.mark.parametrize("eta", [1e-2, 1.0, 30.0])
def test_cayley_is_the_textbook_formula(n, d, eta):
    # Errata 5, in columns and with the big matrix: (I + eta/2 A)^{-1} (I - eta/2 A) w.
    W, G = draw(n, d)
    w, g, eye = W.mT, G.mT, torch.eye(d, dtype=W.dtype)
    A = g @ w.mT - w @ g.mT
    textbook = torch.linalg.solve(eye + eta / 2 * A, (eye - eta / 2 * A) @ w)
    end = retract_cayley(W, riemannian_gradient(W, G, "canonical"), -eta)
    torch.testing.assert_close(end.mT, textbook, rtol=0, atol=1e-12)


def test_cayley_is_the_2n_solve_of_errata_5():
    W, G = draw(3, 20)
    w, g, eta = W.mT, G.mT, 0.7
    U, Y = torch.cat([g, w], -1), torch.cat([w, -g], -1)
    inner = torch.eye(6, dtype=W.dtype) + eta / 2 * Y.mT @ U
    expected = w - eta * U @ torch.linalg.solve(inner, Y.mT @ w)
    end = retract_cayley(W, riemannian_gradient(W, G, "canonical"), -eta)
    torch.testing.assert_close(end.mT, expected, rtol=0, atol=1e-13)


def test_cayley_drops_what_is_not_tangent():
    W, Z = draw(3, 7)
    S = Z[:, :, :3] + Z[:, :, :3].mT
    X = project_tangent(W, Z)
    torch.testing.assert_close(retract_cayley(W, X + S @ W), retract_cayley(W, X), rtol=0, atol=1e-13)


@pytest.mark.parametrize("pair", LEGAL_PAIRS, ids=str)
def test_the_formulas_of_the_table(pair):
    """Each formula of the table of legal pairs, evaluated as written."""
    W, G = (matrix[0] for matrix in draw(3, 7))
    metric, name = pair
    scope = {
        "W": W,
        "G": G,
        "W^T": W.mT,
        "G^T": G.mT,
        "eta": 0.3,
        "I": torch.eye(7, dtype=W.dtype),
        "qf": householder,
        "polar": project,
    }
    grad = G if metric is None else riemannian_gradient(W, G, metric)
    expected = _evaluate(LEGAL_PAIRS[pair], scope)
    torch.testing.assert_close(RETRACTIONS[name](W, grad, -0.3), expected, rtol=0, atol=1e-13)


def _evaluate(formula: str, scope: dict[str, object]) -> Tensor:
    """Read juxtaposition as a product, as in `W (I + eta/2 A) (I - eta/2 A)^{-1}, A = G^T W - W^T G`."""
    head, _, definition = formula.partition(", A = ")
    names = {"W^T": "Wt", "G^T": "Gt"}
    values = {names.get(key, key): value for key, value in scope.items()}

    def translate(text: str) -> str:
        for name, short in names.items():
            text = text.replace(name, short)
        text = text.replace("(I - eta/2 A)^{-1}", "inv(I - eta/2 * A)").replace("eta/2 A", "eta/2 * A")
        text = text.replace("eta (", "eta * (").replace("eta G", "eta * G").replace("1/2 (", "1/2 * (")
        for left in ("W", "G", "Wt", "Gt", ")"):
            for right in ("W", "G", "(", "inv("):
                text = text.replace(f"{left} {right}", f"{left} @ {right}")
        return text

    values["inv"] = torch.linalg.inv
    if definition:
        values["A"] = eval(translate(definition), {}, values)
    return eval(translate(head), {}, values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", RETRACTIONS)
def test_a_step_that_is_not_finite_spoils_its_matrix_only(name, bad, dtype):
    W, Z = draw(3, 7, dtype=dtype)
    X = project_tangent(W, Z)
    expected = RETRACTIONS[name](W, X, 0.1)
    X[1, 2, 3] = bad
    end = RETRACTIONS[name](W, X, 0.1)
    assert end[1].isnan().all()
    torch.testing.assert_close(end[[0, 2]], expected[[0, 2]], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", PROJECTIONS)
def test_a_step_onto_a_lost_rank_stays(name):
    W, Z = draw(3, 7)
    Z[1] = -W[1]
    end = PROJECTIONS[name](W, Z)
    torch.testing.assert_close(end[1], W[1], rtol=0, atol=0)
    assert off_manifold(end) < 1e-13


@pytest.mark.parametrize("name", RETRACTIONS)
def test_one_time_a_matrix(name):
    W, Z = draw(3, 7)
    X, t = project_tangent(W, Z), torch.tensor([0.1, 0.0, -0.3], dtype=W.dtype)
    end = RETRACTIONS[name](W, X, t[:, None, None])
    for i in range(3):
        torch.testing.assert_close(end[i], RETRACTIONS[name](W[i], X[i], t[i].item()), rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", RETRACTIONS)
def test_no_matrix_gives_no_matrix(name):
    empty = torch.zeros(0, 3, 7)
    assert RETRACTIONS[name](empty, empty).shape == (0, 3, 7)


@pytest.mark.parametrize("name", RETRACTIONS)
def test_arguments_are_left_alone(name):
    W, Z = draw(3, 7)
    W0, Z0 = W.clone(), Z.clone()
    RETRACTIONS[name](W, Z, 50.0)
    assert torch.equal(W, W0)
    assert torch.equal(Z, Z0)


@pytest.mark.parametrize("size", [1e-6, 1e-3, 0.01, 0.03, 0.06, 0.08, 0.1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_short_steps_are_those_of_lapack(size: float, dtype: torch.dtype):
    # Sizes on both sides of where one product, two, or a factorization is taken.
    W = haar(20, 50, dtype=dtype)
    Z = torch.randn(20, 50, dtype=dtype)
    Z *= size / Z.norm()
    V = (W + Z).double()
    Q, R = torch.linalg.qr(V.mT)
    U, _, Vh = torch.linalg.svd(V, full_matrices=False)
    close = 10 * torch.finfo(dtype).eps
    assert float((retract_qr(W, Z).double() - (Q * R.diagonal().sign()).mT).abs().max()) < close
    assert float((retract_polar(W, Z).double() - U @ Vh).abs().max()) < close


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_a_step_that_makes_rows_nearly_parallel_lands_on_the_manifold(name, sign, dtype, bound):
    # Equal or opposite: the Gram matrix has the same condition number, of 4e4, and off-diagonal entries of either sign.
    W = haar(2, 6, dtype=dtype)
    Z = torch.stack([torch.zeros_like(W[0]), sign * W[0] - 0.99 * W[1]])
    assert off_manifold(PROJECTIONS[name](W, Z)) < bound


@pytest.mark.parametrize("name", PROJECTIONS)
@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 1e30), (torch.float64, 1e200)], ids=["float32", "float64"])
def test_a_step_of_which_the_squares_are_no_numbers_arrives(name, dtype, size):
    # The start is nothing beside it, so the end is the factor of the step itself.
    W, Z = draw(2, 6, dtype=dtype)
    expected = {"qr": householder, "polar": lambda V: project(V.double())}[name](Z)
    torch.testing.assert_close(
        PROJECTIONS[name](W, Z, size).double(), expected, rtol=0, atol=20 * torch.finfo(dtype).eps
    )
