"""The constant of each known module, against its Jacobian, its dense matrix, or an input that attains it."""

import copy
import math
from collections.abc import Callable
from typing import Any

import mpmath
import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from orthonorm.diagnostics.lipschitz._constants import lipschitz_constant


def derivative_norm(module: nn.Module, x: Tensor) -> float:
    """The norm of the Jacobian at one sample."""
    J: Any = torch.autograd.functional.jacobian(lambda v: module(v[None])[0], x)
    return float(torch.linalg.matrix_norm(J.reshape(-1, x.numel()), 2))


def learned(slopes: list[float]) -> nn.PReLU:
    layer = nn.PReLU(len(slopes))
    layer.weight.data.copy_(torch.tensor(slopes))
    return layer


ACTIVATIONS: dict[str, nn.Module] = {
    "ReLU": nn.ReLU(), "ReLU6": nn.ReLU6(), "Hardtanh": nn.Hardtanh(-2, 5), "Tanh": nn.Tanh(), "Sigmoid": nn.Sigmoid(),
    "LeakyReLU(0.1)": nn.LeakyReLU(0.1), "LeakyReLU(3)": nn.LeakyReLU(3.0), "LeakyReLU(-2)": nn.LeakyReLU(-2.0),
    "PReLU(0.25)": nn.PReLU(), "PReLU(-1.7)": nn.PReLU(init=-1.7), "RReLU": nn.RReLU(0.5, 3.5), "SELU": nn.SELU(),
    "ELU": nn.ELU(), "ELU(4)": nn.ELU(4.0), "ELU(-2)": nn.ELU(-2.0), "CELU(3)": nn.CELU(3.0), "CELU(0.2)": nn.CELU(0.2),
    "GELU": nn.GELU(), "GELU of tanh": nn.GELU(approximate="tanh"), "SiLU": nn.SiLU(), "Mish": nn.Mish(),
    "Hardswish": nn.Hardswish(), "Hardsigmoid": nn.Hardsigmoid(), "Softsign": nn.Softsign(),
    "LogSigmoid": nn.LogSigmoid(), "Softplus": nn.Softplus(), "Softplus(3)": nn.Softplus(3.0, 25.0),
    "Softshrink": nn.Softshrink(1.0), "Tanhshrink": nn.Tanhshrink(), "Hardshrink(0)": nn.Hardshrink(0.0),
    "Threshold": nn.Threshold(0.5, 0.5), "Dropout": nn.Dropout(0.9), "AlphaDropout": nn.AlphaDropout(0.9),
    "Identity": nn.Identity(),
}  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_the_constant_of_an_activation_is_its_steepest_slope(activation: nn.Module):
    constant = lipschitz_constant(activation)
    x = torch.linspace(-30, 30, 600_001, dtype=torch.float64)
    with torch.no_grad():
        y = activation.double().eval()(x)
    steepest = float((y.diff().abs() / x.diff()).max())
    assert steepest == pytest.approx(constant, rel=2e-4)
    assert constant is not None
    assert steepest <= constant * (1 + 1e-9)


def gelu_of_tanh(x: Any) -> Any:
    return x * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))) / 2


SMOOTH: dict[str, tuple[nn.Module, Callable[[Any], Any], float]] = {
    "GELU": (nn.GELU(), lambda x: x * (1 + mpmath.erf(x / mpmath.sqrt(2))) / 2, 1.4),
    "GELU of tanh": (nn.GELU(approximate="tanh"), gelu_of_tanh, 1.4),
    "SiLU": (nn.SiLU(), lambda x: x / (1 + mpmath.exp(-x)), 2.4),
    "Mish": (nn.Mish(), lambda x: x * mpmath.tanh(mpmath.log(1 + mpmath.exp(x))), 1.5),
}


@pytest.mark.parametrize(("activation", "formula", "near"), SMOOTH.values(), ids=SMOOTH)
def test_a_constant_that_is_no_round_number_is_rounded_up(
    activation: nn.Module, formula: Callable[[Any], Any], near: float
):
    with mpmath.workdps(30):
        at = mpmath.findroot(lambda x: mpmath.diff(formula, x, 2), near)
        steepest = mpmath.diff(formula, at)
        assert steepest < mpmath.mpf(lipschitz_constant(activation)) < steepest * (1 + 1e-13)


def test_the_derivative_that_torch_takes_is_bounded_too():
    # That of Hardsigmoid is 1/6 in float32, also in float64.
    module = nn.Hardsigmoid()
    slope = derivative_norm(module, torch.zeros(1, dtype=torch.float64))
    assert mpmath.mpf(1) / 6 < slope <= on.lipschitz_bound(module).bound < slope * (1 + 1e-12)


@pytest.mark.parametrize("module", [nn.Softmax(-1), nn.Softmin(-1), nn.Softmax2d()], ids=lambda m: type(m).__name__)
def test_softmax_attains_its_constant_between_two_equal_classes(module: nn.Module):
    shape = (2, 1, 1) if isinstance(module, nn.Softmax2d) else (2,)
    assert derivative_norm(module, torch.zeros(shape, dtype=torch.float64)) == pytest.approx(0.5)
    assert on.lipschitz_bound(module).bound == 0.5
    for size in (0.1, 1.0, 10.0):
        shape = (5, 1, 1) if isinstance(module, nn.Softmax2d) else (5,)
        assert derivative_norm(module, size * torch.randn(shape, dtype=torch.float64)) <= 0.5


def test_max_min_sorts_pairs_and_keeps_every_norm():
    x = torch.randn(4, 6, 3, dtype=torch.float64)
    for dim, size in ((1, 6), (-2, 6)):
        y = on.MaxMin(dim)(x)
        pairs = x.movedim(dim, -1).reshape(4, 3, size // 2, 2)
        sorted_ = torch.stack([pairs.amax(-1), pairs.amin(-1)], -1).reshape(4, 3, size).movedim(-1, dim)
        assert torch.equal(y, sorted_)
    J: Any = torch.autograd.functional.jacobian(lambda v: on.MaxMin()(v[None])[0], x[0])
    values = torch.linalg.svdvals(J.reshape(18, 18))
    assert float(values.min()) == float(values.max()) == 1
    assert on.lipschitz_bound(on.MaxMin()).bound == 1
    with pytest.raises(ValueError, match="even; got 5 in dimension 1"):
        on.MaxMin()(torch.zeros(2, 5))


LINEAR_MAPS = [
    pytest.param(lambda: nn.Linear(7, 5), (7,), 1, id="Linear"),
    pytest.param(lambda: on.OrthogonalLinear(5, 9, tall="columns"), (5,), 1, id="OrthogonalLinear"),
    pytest.param(lambda: nn.Conv1d(2, 3, 3, padding=1), (2, 9), 1.5, id="Conv1d"),
    pytest.param(lambda: nn.Conv2d(4, 6, 3, 2, 1, groups=2), (4, 7, 6), 1.5, id="Conv2d, stride, groups"),
    pytest.param(lambda: nn.Conv2d(2, 4, 3, padding="same", dilation=2), (2, 5, 6), 1.5, id="Conv2d, same, dilated"),
    pytest.param(lambda: nn.Conv3d(1, 3, 3, padding=1), (1, 3, 4, 3), 1.5, id="Conv3d"),
    pytest.param(lambda: nn.ConvTranspose1d(3, 2, 3, stride=2), (3, 5), 1.5, id="ConvTranspose1d"),
    pytest.param(lambda: nn.ConvTranspose2d(4, 2, 3, 2, 1, 1, groups=2), (4, 3, 3), 1.5, id="ConvTranspose2d"),
    pytest.param(lambda: on.OrthogonalConv2d(3, 8, 3, stride=3), (3, 9, 9), 1, id="windows apart"),
    pytest.param(
        lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), (2, 5, 4), 1, id="circular"
    ),
    pytest.param(
        lambda: nn.Conv1d(2, 3, 3, 2, padding=1, padding_mode="circular"), (2, 8), 1, id="circular, stride 2"
    ),
    pytest.param(lambda: nn.Conv1d(2, 3, 3, padding=3, padding_mode="circular"), (2, 5), 2.5, id="circular, beyond"),
    pytest.param(lambda: nn.Conv1d(2, 3, 3, 2, padding=1, padding_mode="circular"), (2, 7), 2.5, id="circular, odd"),
    pytest.param(lambda: nn.Conv2d(2, 3, 3, padding=1, padding_mode="reflect"), (2, 5, 6), 2.5, id="reflect"),
    pytest.param(lambda: nn.Conv1d(2, 3, 5, padding=2, padding_mode="replicate"), (2, 6), 2.5, id="replicate"),
    pytest.param(lambda: nn.ReflectionPad2d((1, 2, 0, 1)), (1, 3, 4), 1, id="ReflectionPad2d"),
    pytest.param(lambda: nn.ReplicationPad1d((2, 1)), (2, 4), 1, id="ReplicationPad1d"),
    pytest.param(lambda: nn.CircularPad1d((2, 3)), (1, 4), 1, id="CircularPad1d"),
    pytest.param(lambda: nn.ZeroPad2d(1), (1, 2, 3), 1, id="ZeroPad2d"),
    pytest.param(lambda: nn.AvgPool1d(2), (2, 6), 1, id="AvgPool1d"),
    pytest.param(lambda: nn.AvgPool2d(3, 1, 1, count_include_pad=False), (1, 5, 4), 1, id="AvgPool2d, own count"),
    pytest.param(lambda: nn.AvgPool2d((3, 2), (2, 1), ceil_mode=True), (1, 6, 5), 1, id="AvgPool2d, ceiling"),
    pytest.param(lambda: nn.AvgPool3d(2, 1, 1), (1, 3, 2, 3), 1, id="AvgPool3d"),
    pytest.param(lambda: nn.AdaptiveAvgPool2d((2, 3)), (1, 5, 4), 1, id="AdaptiveAvgPool2d"),
    pytest.param(lambda: nn.AdaptiveAvgPool1d(6), (1, 4), 1, id="AdaptiveAvgPool1d, more than there are"),
    pytest.param(lambda: nn.AdaptiveAvgPool2d((None, 1)), (1, 3, 4), 1, id="AdaptiveAvgPool2d, one dimension"),
    pytest.param(lambda: nn.PixelShuffle(2), (4, 2, 3), 1, id="PixelShuffle"),
    pytest.param(lambda: nn.Flatten(), (2, 3), 1, id="Flatten"),
]  # fmt: skip
ANY_SIZE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d)


@pytest.mark.parametrize(("make", "shape", "slack"), LINEAR_MAPS)
def test_the_bound_of_a_linear_map_is_its_norm_or_little_above_it(
    make: Callable[[], nn.Module], shape: tuple[int, ...], slack: float
):
    module = make().double()
    norm = derivative_norm(module, torch.randn(shape, dtype=torch.float64))
    here = on.lipschitz_bound(module, shape).bound
    assert norm * (1 - 1e-13) <= here <= slack * norm * (1 + 1e-12)
    if (
        isinstance(module, ANY_SIZE)
        or getattr(module, "ceil_mode", False)
        or not getattr(module, "count_include_pad", True)
    ):
        with pytest.raises(ValueError, match="Pass input_shape"):
            on.lipschitz_bound(module)
        return
    assert here <= on.lipschitz_bound(module).bound * (1 + 1e-12) <= 3.5 * here


def test_a_transposed_convolution_is_bounded_at_the_size_of_its_output():
    # With W(f) = I + J exp(i f), J a quarter turn, the norm is 2 at f = pi / 2, but sqrt 2 at the frequencies 0 and pi
    # of the circle that the size of the input would give.
    layer = nn.ConvTranspose1d(2, 2, 4, stride=3, dtype=torch.float64)
    layer.weight.data.zero_()
    layer.weight.data[:, :, 0] = torch.eye(2)
    layer.weight.data[:, :, 3] = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    norm = derivative_norm(layer, torch.zeros(2, 3, dtype=torch.float64))
    assert 1.7 < norm <= on.lipschitz_bound(layer, (2, 3)).bound <= on.lipschitz_bound(layer).bound < 2.02


MAX_POOLINGS = [
    pytest.param(nn.MaxPool1d(2), (1, 6), 1.0, id="apart"),
    pytest.param(nn.MaxPool1d(3, 2, 1), (1, 7), 2.0, id="overlapping"),
    pytest.param(nn.MaxPool1d(3, 1, dilation=2), (1, 12), 3.0, id="dilated"),
    pytest.param(nn.MaxPool1d(3, 2, dilation=2), (1, 14), 3.0, id="dilated by the stride"),
    pytest.param(nn.MaxPool1d(3, 2, dilation=3), (1, 16), 2.0, id="dilated across the stride"),
    pytest.param(nn.MaxPool2d(3, 2, 1), (1, 7, 7), 4.0, id="images"),
    pytest.param(nn.MaxPool3d(2, 1), (1, 3, 3, 3), 8.0, id="volumes"),
    pytest.param(nn.AdaptiveMaxPool1d(3), (1, 5), 2.0, id="adaptive"),
    pytest.param(nn.AdaptiveMaxPool2d(2), (1, 4, 4), 1.0, id="adaptive, apart"),
]


@pytest.mark.parametrize(("module", "shape", "windows"), MAX_POOLINGS)
def test_max_pooling_attains_its_constant_at_one_high_point(module: nn.Module, shape: tuple[int, ...], windows: float):
    count = math.prod(shape)
    points = torch.eye(count, dtype=torch.float64).view(count, *shape)
    changes = (module(2 * points) - module(points)).flatten(1).norm(dim=1)
    bound = on.lipschitz_bound(module, shape).bound
    assert float(changes.max()) ** 2 == pytest.approx(windows)
    assert float(changes.max()) <= bound <= math.sqrt(windows) * (1 + 1e-15)


def normalization(make: Callable[[], Any]) -> nn.Module:
    torch.manual_seed(0)
    module = make().double().eval()
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.is_floating_point():
            tensor.data.uniform_(0.2, 3.0)
    return module


@pytest.mark.parametrize("affine", [False, True])
def test_batch_norm_counts_with_its_running_statistics(affine: bool):
    module = normalization(lambda: nn.BatchNorm2d(3, affine=affine))
    norm = derivative_norm(module, torch.randn(3, 2, 2, dtype=torch.float64))
    assert norm <= on.lipschitz_bound(module).bound <= norm * (1 + 1e-12)
    module = normalization(lambda: nn.InstanceNorm1d(3, affine=affine, track_running_stats=True))
    norm = derivative_norm(module, torch.randn(3, 5, dtype=torch.float64))
    assert norm * (1 - 1e-14) <= on.lipschitz_bound(module).bound <= norm * (1 + 1e-12)


OWN_STATISTICS: dict[str, tuple[Callable[[], Any], Callable[[], Tensor]]] = {
    "LayerNorm": (lambda: nn.LayerNorm(4), lambda: torch.ones(4)),
    "LayerNorm without weight": (lambda: nn.LayerNorm(4, eps=0.01, elementwise_affine=False), lambda: torch.ones(4)),
    "GroupNorm": (lambda: nn.GroupNorm(2, 4), lambda: torch.ones(4, 3)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(2, affine=True), lambda: torch.ones(2, 5)),
    "RMSNorm": (lambda: nn.RMSNorm(4, eps=1e-3), lambda: torch.zeros(4)),
    "RMSNorm without eps": (lambda: nn.RMSNorm(4), lambda: torch.zeros(4)),
}


@pytest.mark.parametrize(("make", "worst"), OWN_STATISTICS.values(), ids=OWN_STATISTICS)
def test_layer_norm_and_its_relatives_attain_their_constant_where_the_input_has_no_variance(
    make: Callable[[], Any], worst: Callable[[], Tensor]
):
    module = normalization(make)
    if module.weight is not None:  # for equal weights the constant is attained exactly
        module.weight.data.fill_(1.7)  # type: ignore[operator, union-attr]
    bound = on.lipschitz_bound(module).bound
    norm = derivative_norm(module, worst().double())
    assert norm * (1 - 1e-14) <= bound <= norm * (1 + 1e-9)
    assert derivative_norm(module, torch.randn(worst().shape, dtype=torch.float64)) < bound


@pytest.mark.parametrize("layer", [nn.Linear(4, 2), nn.Conv1d(4, 2, 1)], ids=["linear", "convolution"])
def test_a_weight_that_is_not_finite_has_no_bound(layer: nn.Module):
    layer = copy.deepcopy(layer)
    next(layer.parameters()).data.view(-1)[0] = math.nan
    found = on.lipschitz_bound(layer)
    assert math.isnan(found.bound)
    assert found.layers[0].how == "not finite"


def test_max_min_shows_its_dimension():
    assert repr(on.MaxMin(2)) == "MaxMin(dim=2)"
