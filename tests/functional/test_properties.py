"""What the transformation is by its definition, for any matrix."""

from functools import partial

import pytest
import torch
from torch import Tensor

import oracle
from orthonorm.functional import orthonormalize
from orthonorm.functional._groups import group_sizes
from orthonorm.functional._orthogonality import orthogonality_errors
from spectra import log_spaced, matrix, orthonormal_rows

TIGHT = {"rtol": 0, "atol": 1e-11}
DOUBLE = torch.float64
# The stated accuracy of float32 weights with precision="auto".
FLOAT32 = 1e-5


def random(n: int, d: int) -> Tensor:
    return torch.randn(n, d, dtype=DOUBLE)


def rotation(n: int, seed: int = 3) -> Tensor:
    return orthonormal_rows(n, n, torch.Generator().manual_seed(seed))


def test_rows_of_a_group_are_orthonormal(center: bool, method: str):
    W = orthonormalize(random(17, 8), center=center, method=method)
    sizes = group_sizes(17, 8, center=center)
    assert len(sizes) == 3
    assert orthogonality_errors(W, sizes).max() <= 1e-13


def test_centred_rows_have_zero_mean(method: str):
    W = orthonormalize(random(5, 9) + 10, center=True, method=method)
    assert W.mean(1).abs().max() <= 1e-14


def test_it_commutes_with_a_rotation_of_the_rows_of_a_group(center: bool, method: str):
    # phi(Q V) = Q phi(V)
    V = random(10, 12)
    Q = torch.block_diag(rotation(5), rotation(5, seed=4))
    W = orthonormalize(V, group_size=5, center=center, method=method)
    torch.testing.assert_close(orthonormalize(Q @ V, group_size=5, center=center, method=method), Q @ W, **TIGHT)


def test_it_does_not_commute_with_a_rotation_across_groups():
    V, Q = random(10, 12), rotation(10)
    W = orthonormalize(V, group_size=5)
    assert (orthonormalize(Q @ V, group_size=5) - Q @ W).abs().max() > 0.1


@pytest.mark.parametrize("c", [1e-6, 1e-4, 1.0, 10.0, 1e6])
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
def test_it_does_not_depend_on_the_size(c: float, dtype: torch.dtype, center: bool, method: str):
    # phi(c V) = phi(V); cases, row 3: an absolute eps lets the constraint go.
    V = matrix(log_spaced(8, 1e3), 16, center=center).to(dtype)
    W = orthonormalize(V, center=center, method=method)
    # In float32 c V is not a multiple of V but for the rounding of its entries, which the condition number multiplies.
    expected = {"rtol": 0, "atol": 1e-9 if dtype == DOUBLE else 3e-4}
    torch.testing.assert_close(orthonormalize(c * V, center=center, method=method), W, **expected)
    bound = 1e-6 if method == "eigh" or dtype == DOUBLE else 3e-5
    assert orthogonality_errors(orthonormalize(c * V, center=center, method=method)).max() <= bound


@pytest.mark.parametrize("precision", ["auto", "float64"])
@pytest.mark.parametrize("where", ["smallest", "largest"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, DOUBLE], ids=str)
def test_it_does_not_depend_on_the_size_over_the_range_of_the_type(
    dtype: torch.dtype, where: str, precision: str, center: bool, method: str
):
    # Entries are multiples of 1/8 up to 7/8, so that a power of two changes none of their digits.
    V = (torch.randint(-7, 8, (6, 12)) / 8).to(dtype)
    info = torch.finfo(dtype)
    c = 2 * info.tiny * 8 if where == "smallest" else info.max / 2
    c = torch.tensor(c, dtype=DOUBLE).log2().floor().exp2().item()
    scaled = V * c
    assert torch.equal(scaled / c, V)
    phi = partial(orthonormalize, center=center, method=method, precision=precision)
    atol = 1e-14 if dtype == DOUBLE else 2 * info.eps
    # At the ends of its range a float32 matrix may be computed in float64.
    atol = max(atol, FLOAT32) if precision == "auto" and dtype != DOUBLE else atol
    torch.testing.assert_close(phi(scaled), phi(V), rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, DOUBLE], ids=str)
@pytest.mark.parametrize("precision", ["auto", "float64"])
def test_the_largest_number_of_a_type_is_no_size_too_large(
    dtype: torch.dtype, precision: str, center: bool, method: str
):
    # Found by the campaign: log2 of the largest float64 is rounded up to 1024, and 2^1024 is infinite, so W was zero.
    V = torch.eye(3, 8, dtype=dtype) * torch.finfo(dtype).max
    V.requires_grad_()
    W = orthonormalize(V, center=center, method=method, precision=precision)
    expected = oracle.polar_factor(torch.eye(3, 8, dtype=DOUBLE) - center / 8)
    bound = 4 * torch.finfo(dtype).eps
    assert (W.double() - expected).abs().max() <= (bound if precision == "float64" else max(bound, FLOAT32))
    (gradient,) = torch.autograd.grad(W, V, torch.ones_like(V))
    assert gradient.isfinite().all()


def test_it_leaves_an_orthonormal_matrix_as_it_is(center: bool, method: str):
    # phi(phi(V)) = phi(V)
    W = orthonormalize(random(9, 7), group_size=4, center=center, method=method)
    torch.testing.assert_close(orthonormalize(W, group_size=4, center=center, method=method), W, **TIGHT)


def test_centred_it_does_not_see_the_row_means(method: str):
    # phi(V + b 1^T) = phi(V)
    V, b = random(9, 7), 10 * random(9, 1)
    W, shifted = (orthonormalize(X, center=True, method=method) for X in (V, V + b))
    torch.testing.assert_close(shifted, W, **TIGHT)


def test_uncentred_it_sees_them(method: str):
    V = random(5, 7)
    difference = orthonormalize(V + 10, center=False, method=method) - orthonormalize(V, center=False, method=method)
    assert difference.abs().max() > 0.1


def test_the_gradient_is_orthogonal_to_each_group_of_the_matrix(center: bool, method: str):
    # phi(c V) = phi(V), differentiated: <dL/dV, V> = 0.
    V, G = random(12, 9).requires_grad_(), random(12, 9)
    (gradient,) = torch.autograd.grad(orthonormalize(V, group_size=4, center=center, method=method), V, G)
    products = (gradient * V).detach().reshape(3, -1).sum(1)
    assert products.abs().max() <= 1e-12
    assert gradient.norm() > 0.1


def test_the_gradient_has_zero_row_means_when_centred(method: str):
    V, G = (random(12, 9) + 3).requires_grad_(), random(12, 9) + 2
    (gradient,) = torch.autograd.grad(orthonormalize(V, center=True, method=method), V, G)
    assert gradient.mean(1).abs().max() <= 1e-14


def test_it_is_the_nearest_orthonormal_matrix(method: str):
    # Equation (2): W minimises |W - V|. Any other orthonormal matrix is farther away.
    V = random(6, 10)
    V -= V.mean(1, keepdim=True)
    W = orthonormalize(V, method=method)
    distance = (W - V).norm()
    generator = torch.Generator().manual_seed(1)
    for size in [1e-3, 1e-2, 0.1, 1.0, 10.0]:
        for _ in range(10):
            moved = W + size * torch.randn(6, 10, generator=generator, dtype=DOUBLE)
            assert (oracle.polar_factor(moved) - V).norm() > distance
    for _ in range(20):
        assert (orthonormal_rows(6, 10, generator, center=True) - V).norm() > distance


def test_it_is_the_polar_factor_of_the_singular_vectors(center: bool, method: str):
    V = matrix(log_spaced(12, 1e2), 20, center=center, means=3.0 if center else 0.0)
    expected = oracle.polar_factor(V - V.mean(1, keepdim=True) if center else V)
    torch.testing.assert_close(orthonormalize(V, center=center, method=method), expected, **TIGHT)


def test_a_single_row_is_normalized(center: bool, method: str):
    V = random(1, 5)
    X = V - V.mean(1, keepdim=True) if center else V
    torch.testing.assert_close(orthonormalize(V, center=center, method=method), X / X.norm(), **TIGHT)
