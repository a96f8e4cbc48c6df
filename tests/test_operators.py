"""The operator view, against the dense matrix of the operator built column by column."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import orthonorm as on
from orthonorm.functional.operator_norms import circular_singular_values, linear_map_norm, zero_padded_bound


def dense(apply: Callable[[Tensor], Tensor], shape: tuple[int, ...]) -> Tensor:
    """The matrix of a linear map, one column for each unit vector."""
    count = int(torch.tensor(shape).prod())
    units = torch.eye(count, dtype=torch.float64).view(count, *shape)
    return torch.stack([apply(unit[None]).flatten() for unit in units], dim=1)


def circular(x: Tensor, weight: Tensor, stride: int, dilation: int, groups: int) -> Tensor:
    """A circular convolution from shifted copies, by its definition: y(p) = sum_t W(t) x(p s + t d mod N)."""
    dims = tuple(range(2, x.ndim))
    y = 0
    for index in torch.cartesian_prod(*[torch.arange(k) for k in weight.shape[2:]]).reshape(-1, len(dims)).tolist():
        shifted = torch.roll(x, [-i * dilation for i in index], dims)
        for dim in dims:
            shifted = shifted.index_select(dim, torch.arange(0, x.shape[dim], stride))
        tap = weight[(..., *index)]
        parts = shifted.unflatten(1, (groups, -1)).unbind(1)
        taps = tap.unflatten(0, (groups, -1)).unbind(0)
        y = y + torch.cat([torch.einsum("oc,bc...->bo...", w, part) for w, part in zip(taps, parts, strict=True)], 1)
    assert isinstance(y, Tensor)
    return y


CIRCULAR = [
    pytest.param((3, 2, 3), (6,), 1, 1, 1, id="signals"),
    pytest.param((2, 3, 3), (6,), 2, 1, 1, id="stride 2"),
    pytest.param((4, 1, 3), (6,), 3, 2, 1, id="stride 3, dilation 2"),
    pytest.param((4, 2, 3), (8,), 2, 1, 2, id="two groups"),
    pytest.param((2, 2, 5), (4,), 1, 1, 1, id="kernel beyond the circle"),
    pytest.param((3, 2, 3, 3), (4, 6), 1, 1, 1, id="images"),
    pytest.param((5, 2, 3, 2), (4, 6), 2, 1, 1, id="images at stride 2, uneven kernel"),
    pytest.param((2, 2, 3, 3), (5, 5), 1, 2, 1, id="dilated images"),
    pytest.param((2, 1, 3, 3, 3), (4, 2, 4), 2, 1, 2, id="volumes, groups, stride"),
]


@pytest.mark.parametrize(("shape", "size", "stride", "dilation", "groups"), CIRCULAR)
def test_the_spectrum_of_a_circular_convolution(
    shape: tuple[int, ...], size: tuple[int, ...], stride: int, dilation: int, groups: int
):
    weight = torch.randn(shape, dtype=torch.float64)
    matrix = dense(lambda x: circular(x, weight, stride, dilation, groups), (shape[1] * groups, *size))
    found = circular_singular_values(weight, size, stride=stride, dilation=dilation, groups=groups)
    torch.testing.assert_close(found, torch.linalg.svdvals(matrix), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("stride", [1, 2])
def test_the_spectrum_of_torchs_own_circular_convolution(stride: int):
    layer = nn.Conv2d(3, 4, 3, stride, 1, padding_mode="circular", dtype=torch.float64)
    on.orthogonal_weight_norm(layer)
    matrix = dense(lambda x: layer(x) - layer(torch.zeros_like(x)), (3, 4, 4)).detach()
    values = torch.linalg.svdvals(matrix)
    row = on.operator_norms(layer, torch.zeros(1, 3, 4, 4, dtype=torch.float64))[0]
    assert (row.lower, row.upper, row.smallest) == pytest.approx(
        (float(values[0]), float(values[0]), float(values[-1]))
    )
    assert row.how == "fft"


ZERO = [
    pytest.param(lambda: nn.Conv1d(2, 3, 3, padding=1), (2, 9), id="signals"),
    pytest.param(lambda: nn.Conv2d(3, 4, 3, padding=1), (3, 5, 5), id="images"),
    pytest.param(lambda: nn.Conv2d(3, 4, 3), (3, 5, 5), id="no padding"),
    pytest.param(lambda: nn.Conv2d(2, 4, 3, padding="same", dilation=2), (2, 5, 6), id="same, dilated"),
    pytest.param(lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (4, 7, 6), id="stride, groups"),
    pytest.param(lambda: nn.Conv2d(2, 3, 2, stride=3, padding=2), (2, 7, 7), id="stride beyond the kernel"),
    pytest.param(lambda: nn.Conv3d(1, 3, 3, padding=1), (1, 3, 4, 3), id="volumes"),
    pytest.param(lambda: nn.ConvTranspose1d(3, 2, 3, stride=2), (3, 5), id="transposed"),
    pytest.param(
        lambda: nn.ConvTranspose2d(4, 2, 3, 2, 1, 1, groups=2), (4, 3, 3), id="transposed, groups, output padding"
    ),
]


@pytest.mark.parametrize(("make", "shape"), ZERO)
@pytest.mark.parametrize("orthogonal", [False, True], ids=["plain", "orthogonal"])
def test_the_norm_of_a_zero_padded_convolution_lies_between_the_bounds(
    make: Callable[[], nn.Module], shape: tuple[int, ...], orthogonal: bool
):
    layer = nn.Sequential(make()).double()
    if orthogonal:
        on.orthogonalize_(layer, on.OLMConfig(center=False))
    zero = torch.zeros(1, *shape, dtype=torch.float64)
    norm = float(torch.linalg.matrix_norm(dense(lambda x: layer(x) - layer(zero), shape).detach(), 2))
    row = on.operator_norms(layer, zero)[0]
    assert row.lower <= norm * (1 + 1e-12)
    assert row.lower > 0.99 * norm
    assert norm <= row.upper * (1 + 1e-12)
    assert row.upper < 1.5 * norm  # of use, too, although the images are hardly larger than the kernel
    assert (row.layer, row.smallest) == ("0", None)


def test_an_orthogonal_kernel_is_no_orthogonal_operator():
    layer = on.OrthogonalConv2d(3, 8, 3, padding=1)
    row = on.operator_norms(layer, torch.zeros(1, 3, 8, 8))[0]
    assert row.lower > 1.2
    apart = on.OrthogonalConv2d(3, 8, 3, stride=3)
    row = on.operator_norms(apart, torch.zeros(1, 3, 9, 9))[0]
    assert (row.lower, row.upper) == pytest.approx((1, 1), abs=1e-4)


def test_a_linear_layer_is_exact():
    layer = on.OrthogonalLinear(9, 4, scale=2.0)
    row = on.operator_norms(layer, torch.zeros(1, 9))[0]
    assert (row.lower, row.upper, row.smallest) == pytest.approx((2, 2, 2), rel=1e-6)


def chain() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 3, stride=2), nn.Flatten(), nn.Linear(12, 5)
    )


def test_the_norm_of_a_chain_lies_between_the_bounds():
    model = on.orthogonalize_(chain().double(), None, lambda module, _: isinstance(module, nn.Linear | nn.Conv2d))
    assert isinstance(model, nn.Sequential)
    model.train()
    linear = nn.Sequential(*(m for m in model if not isinstance(m, nn.ReLU)))
    x = torch.zeros(1, 2, 5, 5, dtype=torch.float64)
    norm = float(torch.linalg.matrix_norm(dense(lambda v: linear(v) - linear(x), (2, 5, 5)).detach(), 2))
    found = on.chain_norm(model, x)
    assert 0.99 * norm < found.lower <= norm * (1 + 1e-12) <= found.upper * (1 + 2e-12)
    assert all(module.training for module in model.modules())


def test_the_global_random_state_is_left_alone():
    state = torch.get_rng_state()
    linear_map_norm(lambda x: 2 * x, torch.zeros(3))
    assert torch.equal(torch.get_rng_state(), state)


class Block(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x


def weight(*shape: int) -> Tensor:
    return torch.zeros(shape)


WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "stride": (
        lambda: circular_singular_values(weight(1, 1, 3), [5], stride=2),
        ValueError,
        "that 2 divides; got size 5",
    ),
    "size": (lambda: circular_singular_values(weight(1, 1, 3), [5, 5]), ValueError, r"1 spatial.*got \[5, 5\]"),
    "dilation": (lambda: zero_padded_bound(weight(1, 1, 3), [5], dilation=0), ValueError, "dilation needs a positive"),
    "iterations": (lambda: linear_map_norm(F.relu, weight(2), iterations=0), ValueError, "at least 1; got 0"),
    "no layer": (lambda: on.operator_norms(nn.ReLU(), weight(1, 2)), ValueError, "has no Linear"),
    "circular padding of another amount": (
        lambda: on.operator_norms(nn.Conv1d(1, 1, 3, padding=2, padding_mode="circular"), weight(1, 1, 5)),
        ValueError,
        "some outputs repeat",
    ),
    "reflection": (
        lambda: on.operator_norms(nn.Conv1d(1, 1, 3, padding=1, padding_mode="reflect"), weight(1, 1, 5)),
        ValueError,
        "Use 'zeros' or 'circular'",
    ),
    "chain": (
        lambda: on.chain_norm(nn.Sequential(nn.BatchNorm1d(2)), weight(1, 2)),
        TypeError,
        "got '0', a BatchNorm1d",
    ),
}


@pytest.mark.parametrize(("call", "exception", "message"), WRONG.values(), ids=WRONG)
def test_wrong_inputs(call: Callable[[], object], exception: type[Exception], message: str):
    with pytest.raises(exception, match=message):
        call()
