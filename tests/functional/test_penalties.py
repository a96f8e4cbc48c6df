"""Soft penalties against their definitions."""

import pytest
import torch

from orthonorm.functional import double_soft_orthogonality, haar, soft_orthogonality


def literal(W: torch.Tensor) -> torch.Tensor:
    """|W W^T - I|^2."""
    return (W @ W.mT - torch.eye(len(W), dtype=W.dtype)).square().sum()


@pytest.mark.parametrize(("n", "d"), [(3, 7), (7, 3), (4, 4)])
def test_one_group(n, d):
    W = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    single = literal(W if n <= d else W.mT)
    torch.testing.assert_close(soft_orthogonality(W), single)
    torch.testing.assert_close(double_soft_orthogonality(W), literal(W) + literal(W.mT))


@pytest.mark.parametrize(("n", "group_size", "sizes"), [(7, 3, (3, 2, 2)), (9, 100, (5, 4))])
def test_groups_of_rows(n, group_size, sizes):
    W = torch.randn(n, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    groups = torch.split(W, list(sizes))
    single = sum(literal(group) for group in groups)
    double = sum(literal(group) + literal(group.mT) for group in groups)
    torch.testing.assert_close(soft_orthogonality(W, group_size=group_size), single)
    torch.testing.assert_close(double_soft_orthogonality(W, group_size=group_size), double)


@pytest.mark.parametrize("penalty", [soft_orthogonality, double_soft_orthogonality])
def test_gradients_by_finite_differences(penalty):
    W = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert penalty(W).shape == (2,)
    assert torch.autograd.gradcheck(penalty, W.requires_grad_())
    assert torch.autograd.gradgradcheck(penalty, W)


def test_zero_on_the_manifold():
    W = haar(3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert soft_orthogonality(W) < 1e-28
    assert soft_orthogonality(W.mT) < 1e-28
    torch.testing.assert_close(double_soft_orthogonality(W), torch.tensor(4.0).double())
