"""Powers of two by which a matrix of any size is divided, and the norms of its rows."""

import pytest
import torch

from orthonorm.functional._precision import power_of_two_below, row_norms

TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("end", ["max", "tiny"])
def test_the_ends_of_the_range_of_a_type_are_divided_to_between_1_and_2(dtype: torch.dtype, end: str):
    largest = getattr(torch.finfo(dtype), end)
    X = torch.tensor([[0.0, -largest]], dtype=dtype)
    scale = power_of_two_below(X)
    assert scale.isfinite().all()
    assert 1 <= (X / scale).abs().max() < 2
    assert torch.equal(X / scale * scale, X)


@pytest.mark.parametrize("size", [1e-320, 1e-200, 1.0, 1e200, 3e307])
def test_norms_of_rows_do_not_leave_the_range_of_float64(size: float):
    rows = torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64) * size
    torch.testing.assert_close(row_norms(rows), rows.new_tensor([5.0, 0.0]) * size, rtol=1e-3, atol=0)
