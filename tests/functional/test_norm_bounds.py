"""Upper bounds of norms: never below the truth, which is exact or comes from forty digits or a dense matrix."""

import math
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from orthonorm.functional.norms._norm_bounds import convolution_norm_bound, matrix_norm_bound


def exact_norm(A: Tensor) -> Any:
    """The norm in forty digits."""
    with mpmath.workdps(40):
        return mpmath.svd_r(mpmath.matrix(A.tolist()), compute_uv=False)[0]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("orthogonal", [False, True], ids=["any", "orthogonal"])
def test_a_matrix(seed: int, orthogonal: bool):
    torch.manual_seed(seed)
    A = torch.randn(1 + seed % 7, 6, dtype=torch.float64)
    if orthogonal:
        A = torch.linalg.qr(A.mT).Q.mT.contiguous()
    bound, norm = matrix_norm_bound(A), exact_norm(A)
    assert norm <= mpmath.mpf(bound) <= norm * (1 + 1e-12)


@pytest.mark.parametrize("size", [1e-308, 1e-150, 1e150, 1.7e308])
def test_any_size(size: float):
    bound = matrix_norm_bound(torch.eye(3, dtype=torch.float64) * size)
    assert size <= bound <= size * (1 + 1e-12)
    assert matrix_norm_bound(torch.zeros(2, 3, dtype=torch.float64)) == 0


@pytest.mark.parametrize("n", [1, 3, 64, 300])
def test_a_matrix_of_ones(n: int):
    bound = matrix_norm_bound(torch.ones(n, 3 * n, dtype=torch.float64))
    assert math.isqrt(3 * n * n) <= math.sqrt(3) * n <= bound < math.sqrt(3) * n * (1 + 1e-9)


def test_the_largest_of_a_batch_of_complex_matrices():
    A = torch.randn(2, 3, 4, 5, dtype=torch.complex128)
    norm = float(torch.linalg.matrix_norm(A, 2).max())
    assert norm * (1 - 1e-14) < matrix_norm_bound(A) < norm * (1 + 1e-12)


def test_eigenvalues_that_are_too_small_make_no_bound_too_small(monkeypatch: pytest.MonkeyPatch):
    A = torch.randn(5, 7, dtype=torch.float64)
    eigvalsh = torch.linalg.eigvalsh
    for factor in (1 - 1e-10, 0.5):
        monkeypatch.setattr(torch.linalg, "eigvalsh", lambda G, factor=factor: factor * eigvalsh(G))
        assert exact_norm(A) <= matrix_norm_bound(A) < 1.5 * exact_norm(A)


CONVOLUTIONS = [
    pytest.param((3, 2, 3), 1, 1, 1, 9, id="signals"),
    pytest.param((3, 2, 4), 2, 1, 1, 10, id="stride 2"),
    pytest.param((4, 1, 3), 3, 2, 2, 11, id="stride 3, dilation 2, groups"),
    pytest.param((3, 2, 3), 4, 2, 1, 16, id="stride 4, dilation 2"),
    pytest.param((3, 2, 3), 1, 3, 1, 12, id="dilation 3"),
    pytest.param((3, 2, 2), 3, 1, 1, 9, id="stride beyond the kernel"),
    pytest.param((3, 2, 3, 2), 1, 1, 1, 5, id="images"),
    pytest.param((2, 2, 3, 3), 2, 1, 1, 6, id="images at stride 2"),
    pytest.param((2, 1, 2, 2, 2), 1, 1, 2, 3, id="volumes"),
    pytest.param((4, 3, 1, 1), 1, 1, 1, 3, id="points"),
]


@pytest.mark.parametrize(("shape", "stride", "dilation", "groups", "size"), CONVOLUTIONS)
@pytest.mark.parametrize("positive", [False, True], ids=["random", "positive"])
def test_a_convolution_with_zeros_around(
    shape: tuple[int, ...], stride: int, dilation: int, groups: int, size: int, positive: bool
):
    weight = torch.randn(shape, dtype=torch.float64)
    weight = weight.abs() if positive else weight
    dims = len(shape) - 2
    run = getattr(F, f"conv{dims}d")
    units = torch.eye(shape[1] * groups * size**dims, dtype=torch.float64).view(-1, shape[1] * groups, *[size] * dims)
    pad = dilation * (shape[2] - 1)
    matrix = run(units, weight, None, stride, pad, dilation, groups).flatten(1)
    norm = float(torch.linalg.matrix_norm(matrix, 2))
    options: Any = {"stride": [stride] * dims, "dilation": [dilation] * dims, "groups": groups}
    here = convolution_norm_bound(weight, **options, size=[size] * dims)
    everywhere = convolution_norm_bound(weight, **options)
    # Of one size it may be the worst of all sizes, and then 0.5% a dimension above it.
    assert norm * (1 - 1e-13) <= here <= everywhere <= 1.6 * norm
    # On a large circle the norm of all frequencies is reached.
    near = convolution_norm_bound(weight, **options, size=[24 * stride * dilation] * dims, circular=True)
    assert near <= everywhere < 1.04 * near
