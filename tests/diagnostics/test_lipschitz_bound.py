"""The bound of a network: attained where it can be, right for what stands in it, refused where it is not known."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

import orthonorm as on


def times(factor: float, dim: int = 6) -> nn.Linear:
    layer = nn.Linear(dim, dim, bias=False)
    nn.init.eye_(layer.weight).data.mul_(factor)
    return layer


class Residual(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Adapted(nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        return 2 * super().forward(input)


def branch(block: Any) -> float:
    return 1 + on.lipschitz_bound(block.body).bound


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_layers_with_common_directions_attain_the_product_and_none_is_above_it(dtype: torch.dtype):
    torch.manual_seed(3)
    U, _, Vh = torch.linalg.svd(torch.randn(8, 8, dtype=torch.float64))
    # Each layer sends its first right singular vector to the first of the next one.
    spectrum = torch.linspace(2.0, 0.5, 8, dtype=torch.float64)
    layers = [nn.Linear(8, 8, dtype=dtype) for _ in range(3)]
    for layer, (left, right) in zip(layers, [(U, Vh), (Vh.T, U.T), (U, Vh)], strict=True):
        layer.weight.data.copy_(left @ torch.diag(spectrum) @ right)
    model = nn.Sequential(*layers)
    x, y = Vh[0], -Vh[0]
    double = copy.deepcopy(model).double()
    ratio = float((double(x) - double(y)).detach().norm() / (x - y).norm())
    bound = on.lipschitz_bound(model).bound
    assert bound == pytest.approx(8, rel={torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 0.1}[dtype])
    assert ratio <= bound <= ratio * (1 + {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 0.1}[dtype])


def test_a_network_of_one_group_a_layer_has_the_bound_1_and_keeps_every_gradient():
    model = nn.Sequential(
        on.OrthogonalLinear(6, 16, tall="columns"), on.MaxMin(), on.OrthogonalLinear(16, 16), on.MaxMin(),
        on.OrthogonalLinear(16, 5),
    )  # fmt: skip
    found = on.lipschitz_bound(model)
    assert 1 - 1e-5 < found.bound < 1 + 1e-5
    J: Any = torch.autograd.functional.jacobian(lambda v: model[:4](v[None])[0], torch.randn(6))
    torch.testing.assert_close(J.mT @ J, torch.eye(6), rtol=0, atol=1e-5)


def test_the_derivative_of_a_convolutional_network_stays_below_the_bound():
    model = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(3, 2, 1),
        nn.Sequential(Residual(on.OrthogonalConv2d(4, 4, 3, padding=1, padding_mode="circular")), nn.SiLU()),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(0.5), nn.Linear(16, 5),
    ).double()  # fmt: skip
    found = on.lipschitz_bound(model, (2, 6, 6), constants={Residual: branch})
    assert all(module.training for module in model.modules())
    model.eval()
    for size in (0.1, 1.0, 10.0):
        x = size * torch.randn(2, 6, 6, dtype=torch.float64)
        J: Any = torch.autograd.functional.jacobian(lambda v: model(v[None])[0], x)
        assert float(torch.linalg.matrix_norm(J.flatten(1), 2)) < found.bound
        y = x + size * torch.randn_like(x)
        assert (model(x[None]) - model(y[None])).norm() < found.bound * (x - y).norm()
    assert math.prod(row.bound for row in found.layers) == pytest.approx(found.bound)


def test_power_iteration_reaches_the_bound_of_a_large_circular_convolution():
    layer = nn.Conv2d(3, 5, 3, padding=1, padding_mode="circular", bias=False, dtype=torch.float64)
    on.orthogonal_weight_norm(layer)
    bound = on.lipschitz_bound(layer, (3, 12, 12)).bound
    kernel = layer.weight.detach()
    lower = on.functional.linear_map_norm(
        lambda x: layer._conv_forward(x, kernel, None), torch.zeros(1, 3, 12, 12, dtype=torch.float64), iterations=500
    )
    assert lower <= bound < lower * (1 + 1e-3)


def test_a_convolution_is_bounded_at_the_size_that_reaches_it():
    model = nn.Sequential(nn.Conv2d(3, 3, 3, stride=2), nn.ReLU(), nn.Conv2d(3, 2, 3), nn.Tanh())
    rows = on.lipschitz_bound(model, (3, 11, 9)).layers
    assert rows[0].bound == on.lipschitz_bound(model[0], (3, 11, 9)).bound
    assert rows[2].bound == on.lipschitz_bound(model[2], (3, 5, 4)).bound < on.lipschitz_bound(model[2]).bound


def test_a_layer_that_stands_in_a_chain_twice_counts_twice():
    layer = times(2)
    found = on.lipschitz_bound(nn.Sequential(layer, nn.Sequential(times(2)), nn.Identity(), layer))
    assert [row.layer for row in found.layers] == ["0", "1.0", "2", "3"]
    assert 8 <= found.bound == pytest.approx(8)


def test_one_layer_and_none_have_bounds():
    assert on.lipschitz_bound(times(2)).bound == pytest.approx(2)
    assert on.lipschitz_bound(nn.Sequential()).bound == 1
    assert on.lipschitz_bound(nn.Sequential(nn.ReLU(), nn.Flatten()), (2, 3)).bound == 1


def test_wrappers_that_change_no_value_are_looked_through():
    inner = nn.Sequential(times(2), nn.ReLU())
    for wrapped in (nn.DataParallel(inner), torch.optim.swa_utils.AveragedModel(inner)):
        for model in (wrapped, nn.Sequential(wrapped)):
            assert on.lipschitz_bound(model).bound == pytest.approx(2)


@pytest.mark.nightly
@pytest.mark.compiled
@pytest.mark.parametrize("method", [False, True], ids=["torch.compile", "module.compile"])
def test_a_compiled_model_that_has_run_has_the_bound_of_the_model(method: bool):
    plain = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))
    expected = on.lipschitz_bound(plain, (6,))
    model: Any = plain if method else torch.compile(plain, backend="aot_eager")
    if method:
        plain.compile(backend="aot_eager")
    with torch.no_grad():
        model(torch.randn(3, 6))
    assert on.lipschitz_bound(model, (6,)) == expected
    assert on.lipschitz_bound(nn.Sequential(model), (6,)).bound == expected.bound


def test_the_spectral_norm_of_torch_is_read_and_left_as_it_is():
    layer: Any = parametrizations.spectral_norm(nn.Linear(6, 5), n_power_iterations=1)
    before = copy.deepcopy(layer.state_dict())
    bound = on.lipschitz_bound(layer).bound
    assert all(torch.equal(value, before[key]) for key, value in layer.state_dict().items())
    assert bound == pytest.approx(float(torch.linalg.matrix_norm(layer.eval().weight.detach(), 2)))
    assert bound > 1  # one step of power iteration is not enough


class UnitNorm(nn.Module):
    def __init__(self, size: tuple[int, ...]) -> None:
        super().__init__()
        self.size = size

    def forward(self, kernel: Tensor) -> Tensor:
        return kernel / on.functional.zero_padded_bound(kernel, self.size)


def test_an_orthogonal_kernel_divided_by_its_bound_has_the_bound_1():
    layer: Any = on.OrthogonalConv2d(3, 8, 3, padding=1)
    parametrize.register_parametrization(layer, "weight", UnitNorm((9, 9)))
    assert on.lipschitz_bound(layer, (3, 9, 9)).bound == pytest.approx(1, abs=1e-5)
    layer(torch.randn(1, 3, 9, 9)).sum().backward()
    assert float(layer.parametrizations.weight.original.grad.abs().max()) > 0
    parametrize.remove_parametrizations(layer, "weight")
    assert on.lipschitz_bound(layer, (3, 9, 9)).bound == pytest.approx(1, abs=1e-5)


def test_declared_constants_go_by_name_first_and_then_by_class():
    model = nn.Sequential(Residual(times(3)), Residual(times(3)), nn.Softsign())
    found = on.lipschitz_bound(model, constants={Residual: branch, "1": 2.5, nn.Softsign: 1})
    assert [row.bound for row in found.layers] == [pytest.approx(4), 2.5, 1]
    assert [row.how for row in found.layers] == ["declared"] * 3
    assert found.layers[0].bound > 4 >= on.lipschitz_bound(nn.ReLU(), constants={nn.ReLU: 4}).bound
    # What a function added may have been rounded down.
    assert on.lipschitz_bound(nn.ReLU(), constants={nn.ReLU: lambda _: 0.1}).bound == math.nextafter(0.1, 1)
    whole = on.lipschitz_bound(model, constants={nn.Sequential: lambda m: float(len(m))})
    assert [row.bound for row in whole.layers] == [pytest.approx(3)]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_has_the_bound_nan(bad: float):
    for layer in (nn.Linear(2, 2), nn.Conv1d(2, 2, 3), nn.PReLU(3), nn.LayerNorm(2)):
        layer = copy.deepcopy(layer)
        layer.weight.data[0] = math.nan if isinstance(layer, nn.PReLU | nn.LayerNorm) else bad
        assert math.isnan(on.lipschitz_bound(nn.Sequential(times(2), layer)).bound)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_without_outputs_has_the_bound_zero():
    assert on.lipschitz_bound(nn.Linear(5, 0)).bound == 0
    assert on.lipschitz_bound(nn.Conv1d(5, 0, 3)).bound == 0


def test_the_bound_is_found_in_inference_mode_and_whatever_the_default_device():
    model = nn.Sequential(
        on.OrthogonalConv1d(4, 4, 3, padding=1, padding_mode="reflect"), nn.SiLU(), nn.AdaptiveAvgPool1d(2)
    )
    expected = on.lipschitz_bound(model, (4, 5))
    with torch.inference_mode():
        assert on.lipschitz_bound(model, (4, 5)) == expected
    with torch.device("meta"):
        assert on.lipschitz_bound(model, (4, 5)) == expected


def test_the_text_has_a_row_a_step():
    found = on.lipschitz_bound(nn.Sequential(on.OrthogonalLinear(4, 4), nn.ReLU()))
    lines = str(found).splitlines()
    assert [line.split()[1] for line in lines[2:4]] == ["OrthogonalLinear", "ReLU"]
    assert lines[-1].split() == ["product", f"{found.bound:.6g}"]


def with_forward() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.forward = lambda x: 3 * x  # type: ignore[method-assign]
    return layer


def after_a_layer(module: nn.Module) -> Callable[[], object]:
    return lambda: on.lipschitz_bound(nn.Sequential(nn.Linear(2, 2), module))


def with_constants(constants: Any) -> Callable[[], object]:
    return lambda: on.lipschitz_bound(nn.Sequential(nn.Linear(2, 2), nn.Bilinear(2, 2, 2)), constants=constants)


WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "another forward": (after_a_layer(Adapted(2, 2)), TypeError, r"got 1, a Adapted.*\{'1': number\}.*\{Adapted: func"),
    "a forward of its own": (after_a_layer(with_forward()), TypeError, "got 1, a Linear"),
    "a block": (lambda: on.lipschitz_bound(Residual(nn.ReLU())), TypeError, "got the model, a Residual.*{Residual: "),
    "attention": (after_a_layer(nn.MultiheadAttention(2, 1)), TypeError, "got 1, a MultiheadAttention"),
    "batch statistics": (after_a_layer(nn.BatchNorm1d(2, track_running_stats=False)), TypeError, "a BatchNorm1d"),
    "indices": (after_a_layer(nn.MaxPool1d(2, return_indices=True)), TypeError, "got 1, a MaxPool1d"),
    "adaptive indices": (
        lambda: on.lipschitz_bound(nn.AdaptiveMaxPool1d(2, return_indices=True)),
        TypeError,
        "a AdaptiveMaxPool1d",
    ),
    "a divisor": (after_a_layer(nn.AvgPool2d(2, divisor_override=3)), TypeError, "got 1, a AvgPool2d"),
    "negative padding": (after_a_layer(nn.CircularPad1d((1, -1))), TypeError, "got 1, a CircularPad1d"),
    "complex": (after_a_layer(nn.Linear(2, 2, dtype=torch.complex64)), TypeError, "got 1, a Linear"),
    "a jump": (after_a_layer(nn.Hardshrink()), ValueError, r"1, a Hardshrink\(0.5\), jumps .* use a continuous"),
    "a threshold": (after_a_layer(nn.Threshold(0.0, 1.0)), ValueError, "Threshold.*jumps"),
    "a low threshold": (after_a_layer(nn.Softplus(1.0, 2.0)), ValueError, "Softplus.*jumps"),
    "an exponential": (after_a_layer(nn.CELU(-1.0)), ValueError, "CELU.*grows without limit"),
    "no eps": (after_a_layer(nn.LayerNorm(2, eps=0.0)), ValueError, "LayerNorm.*grows without limit"),
    "adaptive": (after_a_layer(nn.AdaptiveAvgPool1d(2)), ValueError, "1, a AdaptiveAvgPool1d.*Pass input_shape"),
    "meta": (after_a_layer(nn.Linear(2, 2, device="meta")), ValueError, "1 is on the meta device.*to_empty"),
    "a hook": (after_a_layer(prune.identity(nn.Linear(2, 2), "weight")), ValueError, "1 has a weight that a hook"),
    "a slip": (with_constants({"l": 1.0}), ValueError, "got 'l'"),
    "a near slip": (
        lambda: on.lipschitz_bound(nn.Sequential(nn.Sequential(nn.ReLU())), constants={"0.1": 1.0}),
        ValueError,
        "Did you mean '0.0'",
    ),
    "a class of something else": (with_constants({int: 1.0}), ValueError, "got <class 'int'>"),
    "a negative constant": (with_constants({"1": -1.0}), ValueError, "at least 0; got -1.0 for 1"),
    "an infinite constant": (with_constants({nn.Bilinear: lambda _: math.inf}), ValueError, "got inf for 1"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "exception", "message"), WRONG.values(), ids=WRONG)
def test_wrong_inputs(call: Callable[[], object], exception: type[Exception], message: str):
    with pytest.raises(exception, match=message):
        call()


@pytest.mark.usefixtures("unenforced")
def test_what_is_no_module_is_refused():
    lipschitz_bound: Any = on.lipschitz_bound
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module; got int"):
        lipschitz_bound(5)


class Standardized(nn.Conv2d):
    """Weight standardization, where torch's convolutions are extended."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input, 9 * weight, bias)


def shortcut() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    before = model.forward
    model.forward = lambda input: input + before(input)  # type: ignore[method-assign]
    return model


class Doubled(nn.Sequential):
    def __call__(self, input: Tensor) -> Tensor:
        return 2 * super().__call__(input)


@pytest.mark.parametrize(
    "model",
    [
        shortcut(),
        nn.Sequential(shortcut()),
        nn.Sequential(Doubled(nn.Linear(4, 4))),
        nn.Sequential(Standardized(3, 8, 3)),
    ],
    ids=["forward replaced", "forward replaced inside", "call overridden", "convolution extended"],
)
def test_a_module_that_computes_otherwise_than_its_class_is_refused(model: nn.Module):
    with pytest.raises(TypeError, match="constants="):
        on.lipschitz_bound(model)


def normalized(**values: float) -> nn.BatchNorm1d:
    layer = nn.BatchNorm1d(3)
    for name, value in values.items():
        getattr(layer, name).data.fill_(value)
    return layer


@pytest.mark.parametrize(
    "layer", [normalized(weight=float("inf")), normalized(running_var=float("inf"))], ids=["weight", "variance"]
)
def test_what_is_not_finite_gives_no_bound(layer: nn.Module):
    assert math.isnan(on.lipschitz_bound(nn.Sequential(nn.Linear(3, 3), layer)).bound)


@pytest.mark.parametrize(
    "layer", [nn.LayerNorm(3, device="meta"), nn.PReLU(device="meta"), nn.LazyBatchNorm1d()], ids=str
)
def test_what_has_no_values_is_refused_by_name(layer: nn.Module):
    with pytest.raises(ValueError, match=r"^1 (is|has)"):
        on.lipschitz_bound(nn.Sequential(nn.ReLU(), layer))


def test_a_shape_with_the_batch_in_it_is_refused_by_the_layer():
    with pytest.raises(ValueError, match=r"input_shape.* 0 .*1, 1, 3, 8, 8"):
        on.lipschitz_bound(nn.Sequential(nn.Conv2d(3, 3, 3)), (1, 3, 8, 8))
