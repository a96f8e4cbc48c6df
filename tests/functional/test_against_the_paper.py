"""The library against the paper's algorithms, where they are defined, and against finite differences, where not."""

import pytest
import torch
from torch import Tensor

import oracle
from orthonorm.functional import orthonormalize
from orthonorm.functional._groups import group_sizes
from spectra import SPECTRA, hadamard, log_spaced, matrix


def gradient(V: Tensor, G: Tensor, **options) -> Tensor:
    V = V.clone().requires_grad_()
    return torch.autograd.grad(orthonormalize(V, **options), V, G)[0]


def relative(actual: Tensor, expected: Tensor) -> float:
    return ((actual - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("condition", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("name", SPECTRA)
def test_weight(name: str, condition: float, center: bool, method: str):
    V = matrix(SPECTRA[name](24, condition), 40, center=center, means=1.0 if center else 0.0)
    expected = oracle.forward(V, center=center)
    assert relative(orthonormalize(V, center=center, method=method), expected) <= 1e-10


@pytest.mark.parametrize("grouping", ["balanced", "tail"])
@pytest.mark.parametrize("group_size", [3, 5, None])
def test_weight_and_gradient_in_groups(group_size: int | None, grouping: str, center: bool, method: str):
    V, G = torch.randn(2, 13, 9, dtype=torch.float64)
    options = {"group_size": group_size, "grouping": grouping, "center": center}
    sizes = group_sizes(13, 9, **options)
    W = orthonormalize(V, method=method, **options)
    assert relative(W, oracle.grouped(oracle.forward, sizes, V, center=center)) <= 1e-10
    expected = oracle.grouped(oracle.backward, sizes, V, G, center=center)
    assert relative(gradient(V, G, method=method, **options), expected) <= 1e-9


@pytest.mark.parametrize("condition", [3.0, 30.0])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_gradient_at_distinct_eigenvalues(condition: float, seed: int, center: bool, method: str):
    V = matrix(log_spaced(6, condition), 11, center=center, means=2.0 if center else 0.0, seed=seed)
    G = torch.randn(6, 11, dtype=torch.float64)
    assert relative(gradient(V, G, center=center, method=method), oracle.backward(V, G, center=center)) <= 1e-9


def test_the_oracle_is_right_at_distinct_eigenvalues(center: bool):
    V, G = torch.randn(2, 4, 7, dtype=torch.float64)
    assert relative(oracle.backward(V, G, center=center), central_differences(V, G, center)) <= 1e-7


def central_differences(V: Tensor, G: Tensor, center: bool, step: float = 1e-5) -> Tensor:
    """The gradient of <G, W> by moving each entry of V, W from the oracle's forward pass."""
    steps = step * torch.eye(V.numel(), dtype=V.dtype).reshape(-1, *V.shape)
    differences = [oracle.forward(V + E, center=center) - oracle.forward(V - E, center=center) for E in steps]
    return torch.stack([(G * D).sum() / (2 * step) for D in differences]).reshape(V.shape)


@pytest.mark.parametrize(
    "V",
    [
        pytest.param(hadamard(8)[1:5], id="hadamard"),
        pytest.param(torch.tensor([2.0, 2.0, 5.0, 5.0]).diag_embed().double() @ hadamard(8)[1:5], id="pairs"),
    ],
)
def test_equal_eigenvalues_where_the_paper_divides_by_zero(V: Tensor, center: bool, method: str):
    # Errata 1. Both matrices have zero row means and a Sigma without rounding, so K is exactly 1/0.
    G = torch.randn(4, 8, dtype=torch.float64)
    assert not oracle.backward(V, G, center=center).isfinite().all()
    ours = gradient(V, G, center=center, method=method)
    assert ours.isfinite().all()
    assert relative(ours, central_differences(V, G, center)) <= 1e-8


def test_gradient_of_float32_is_that_of_float64(center: bool, method: str):
    V = matrix(log_spaced(16, 30.0), 40, center=center, means=2.0 if center else 0.0).float()
    G = torch.randn(16, 40)
    expected = oracle.backward(V.double(), G.double(), center=center)
    assert relative(gradient(V, G, center=center, method=method).double(), expected) <= 1e-5
