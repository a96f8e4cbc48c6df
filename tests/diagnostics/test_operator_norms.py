"""The operator view, against the dense matrix of the operator built column by column."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import orthonorm as on
from orthonorm.functional.norms._convolution_norms import circular_singular_values, linear_map_norm, zero_padded_bound


@torch.no_grad()
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
        on.orthogonalize_(layer, on.OrthogonalConfig(center=False))
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


def weight(*shape: int) -> Tensor:
    return torch.zeros(shape)


def times_two(dim: int = 6) -> nn.Linear:
    layer = nn.Linear(dim, dim, bias=False)
    nn.init.eye_(layer.weight).data.mul_(2)
    return layer


class ByName(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = times_two()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(input=x)


def test_a_layer_may_be_called_by_the_name_of_its_input():
    assert [(row.layer, row.upper) for row in on.operator_norms(ByName(), weight(1, 6))] == [("layer", 2.0)]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_weight_that_is_not_finite_has_a_norm_of_nan_and_hides_no_other(bad: float):
    model = nn.Sequential(nn.Conv1d(2, 2, 3), nn.Conv1d(2, 2, 3, padding=1, padding_mode="circular"), nn.Linear(4, 3))
    for layer in (model[0], model[2]):
        layer.weight.data[1] = bad  # type: ignore[index]
    rows = on.operator_norms(model, weight(1, 2, 6))
    assert [(row.layer, row.how) for row in rows] == [("0", "not finite"), ("1", "fft"), ("2", "not finite")]
    assert [math.isnan(row.lower) and math.isnan(row.upper) for row in rows] == [True, False, True]
    assert math.isnan(linear_map_norm(lambda x: bad * x, weight(3)))


def test_norms_are_found_in_inference_mode():
    x = torch.zeros(1, 4, 5)
    model = nn.Sequential(on.OrthogonalConv1d(4, 4, 3, padding=1), nn.SiLU(), nn.ConvTranspose1d(4, 3, 3))
    expected = on.operator_norms(model, x)
    with torch.inference_mode():
        assert on.operator_norms(model, x) == expected
        assert on.operator_norms(nn.Conv1d(4, 4, 3), torch.zeros(1, 4, 5))[0].lower > 0


def test_norms_are_found_whatever_the_default_device():
    model = nn.Sequential(on.OrthogonalConv1d(4, 4, 3, padding=1), nn.SiLU(), nn.Conv1d(4, 3, 3))
    x = torch.zeros(1, 4, 5)
    expected = on.operator_norms(model, x)
    with torch.device("meta"):
        assert on.operator_norms(model, x) == expected


@pytest.mark.parametrize("dim", range(2, 12))
def test_round_off_leaves_the_bounds_in_order(dim: int):
    for layer in (nn.Linear(dim, dim), nn.Conv1d(dim, dim, 1)):
        x = torch.zeros(1, dim) if isinstance(layer, nn.Linear) else torch.zeros(1, dim, 3)
        (found,) = on.operator_norms(layer, x)
        assert found.lower <= found.upper


@pytest.mark.nightly
@pytest.mark.compiled
@pytest.mark.parametrize("method", [False, True], ids=["torch.compile", "module.compile"])
def test_a_compiled_model_that_has_run_has_the_norms_of_the_model(method: bool):
    plain = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))
    x = torch.randn(3, 6)
    expected = on.operator_norms(plain, x)
    model: Any = plain if method else torch.compile(plain, backend="aot_eager")
    if method:
        plain.compile(backend="aot_eager")
    with torch.no_grad():
        model.eval()(x)
    assert on.operator_norms(model, x) == expected


def test_the_global_random_state_is_left_alone():
    state = torch.get_rng_state()
    linear_map_norm(lambda x: 2 * x, torch.zeros(3))
    assert torch.equal(torch.get_rng_state(), state)


class Bypassed(ByName):
    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.layer.weight)


WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "stride": (
        lambda: circular_singular_values(weight(1, 1, 3), [5], stride=2),
        ValueError,
        "that 2 divides; got size 5",
    ),
    "size": (lambda: circular_singular_values(weight(1, 1, 3), [5, 5]), ValueError, r"1 spatial.*got \[5, 5\]"),
    "dilation": (lambda: zero_padded_bound(weight(1, 1, 3), [5], dilation=0), ValueError, "dilation needs a positive"),
    "one dilation of two": (
        lambda: zero_padded_bound(weight(1, 1, 3, 3), [4, 4], dilation=(1, 0)),
        ValueError,
        r"dilation needs a positive.*got \[1, 0\]",
    ),
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
    "layers that do not run": (
        lambda: on.operator_norms(Bypassed(), weight(1, 6)),
        ValueError,
        "this Bypassed called none of its 1 Linear and convolution layers.*Pass the part of it that does",
    ),
    "meta": (
        lambda: on.operator_norms(nn.Linear(2, 2, device="meta"), weight(1, 2).to("meta")),
        ValueError,
        "the layer is on the meta device.*to_empty",
    ),
}


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize("measure", [on.operator_norms, on.signal_propagation])
def test_what_is_no_module_is_refused(measure: Any):
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module; got int"):
        measure(5, weight(2, 2))


@pytest.mark.parametrize(("call", "exception", "message"), WRONG.values(), ids=WRONG)
def test_wrong_inputs(call: Callable[[], object], exception: type[Exception], message: str):
    with pytest.raises(exception, match=message):
        call()


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_without_outputs_has_the_norm_zero():
    (row,) = on.operator_norms(nn.Sequential(nn.Linear(5, 0)), torch.randn(2, 5))
    assert (row.lower, row.upper, row.how) == (0.0, 0.0, "empty")


BOUNDED = {
    "stride": nn.Conv1d(1, 2, 3, stride=2, padding=1),
    "dilation": nn.Conv1d(1, 2, 3, dilation=3, padding=3),
    "transposed": nn.ConvTranspose1d(1, 1, 7, stride=2),
    "transposed, dilated": nn.ConvTranspose1d(1, 1, 3, stride=2, dilation=2),
}


@pytest.mark.parametrize(("layer", "size"), [(layer, n) for layer in BOUNDED.values() for n in (2, 3, 5)], ids=str)
def test_the_circle_of_the_bound_has_room_for_the_whole_kernel(layer: Any, size: int):
    # The bound is that of the circle which is named in its docstring, on the finer side: a smaller one may be too low.
    layer = copy.deepcopy(layer).double()
    n = layer(torch.zeros(1, 1, size, dtype=torch.float64)).shape[-1] if layer.transposed else size
    (k,), (d,), (s,) = layer.kernel_size, layer.dilation, layer.stride
    circle = math.ceil((n + (k - 1) * d) / s) * s
    for _ in range(5):
        layer.weight.data.normal_()
        matrix = dense(lambda x: circular(x, layer.weight.data, s, d, 1), (1, circle))
        row = on.operator_norms(layer, torch.zeros(1, 1, size, dtype=torch.float64))[0]
        assert row.upper == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)), rel=1e-12)
