"""The measured error of weights whose error is known."""

import pytest
import torch

from orthonorm.functional._orthogonality import orthogonality_errors


@pytest.mark.parametrize("error", [0.0, 1e-3, 0.5])
def test_a_known_error_of_a_row(error: float):
    W = torch.eye(3, 5, dtype=torch.float64)
    W[1] *= (1 + error) ** 0.5
    assert orthogonality_errors(W).item() == pytest.approx(error, abs=1e-15)


@pytest.mark.parametrize("error", [-0.5, 1e-3, 0.5])
def test_a_known_angle_between_two_rows(error: float):
    W = torch.eye(3, 5, dtype=torch.float64)
    W[2] = torch.tensor([error, 0.0, (1 - error**2) ** 0.5, 0.0, 0.0], dtype=torch.float64)
    assert orthogonality_errors(W).item() == pytest.approx(abs(error), abs=1e-15)


def test_each_matrix_and_group_by_itself():
    W = torch.eye(4, 6, dtype=torch.float64).repeat(2, 1, 1)
    W[1, 3] = W[1, 0]  # dependent, but in another group
    W[0, 2] *= 2
    expected = torch.tensor([[0.0, 3.0], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(orthogonality_errors(W, (2, 2)), expected)
    torch.testing.assert_close(orthogonality_errors(W), torch.tensor([[3.0], [1.0]], dtype=torch.float64))


def test_float32_weights_are_measured_in_float64():
    W = torch.tensor([[1.0 + 2**-20, 0.0]])
    expected = 2 * 2.0**-20 + 2.0**-40
    assert orthogonality_errors(W).item() == expected


def test_it_is_no_part_of_the_graph():
    assert not orthogonality_errors(torch.eye(2, requires_grad=True)).requires_grad
