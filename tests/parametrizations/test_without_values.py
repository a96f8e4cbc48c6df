"""A V that was made on the meta device is refused until it has values, by whatever way it gets them."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from orthogonal_layers import free, polar, scale, weight

SCALES = [None, "learned", "row_norms"]


def layer_without_values(scaled: Any = None, **options: Any) -> Any:
    return on.OrthogonalLinear(8, 4, scale=scaled, device="meta", **options).to_empty(device="cpu")


def cached(layer: Any) -> Tensor:
    with on.cached(nn.Sequential(layer, on.OrthogonalLinear(4, 4))):
        return layer(torch.randn(2, 8))


USES: dict[str, Callable[[Any], Any]] = {
    "forward": lambda layer: layer(torch.randn(2, 8)),
    "read": lambda layer: layer.weight,
    "fold": on.fold,
    "cached": cached,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("scaled", SCALES)
def test_what_was_never_filled_is_refused(scaled: Any, use: Any):
    layer = layer_without_values(scaled)
    with pytest.raises(ValueError, match=r"weight of OrthogonalLinear .*meta.*plain\.state_dict"):
        use(layer)
    assert free(layer).isnan().all()


def set_values(layer: Any) -> None:
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()


def set_data(layer: Any) -> None:
    for parameter in layer.parameters():
        parameter.data = torch.randn_like(parameter)


def assign(layer: Any) -> None:
    layer.weight = torch.randn(4, 8)


FILLED: dict[str, Callable[[Any], Any]] = {
    "plain file": lambda layer: layer.load_state_dict(nn.Linear(8, 4).state_dict()),
    "plain file, assigned": lambda layer: layer.load_state_dict(nn.Linear(8, 4).state_dict(), assign=True),
    "in place": set_values,
    "by data": set_data,
    "assignment": assign,
    "reset_parameters": lambda layer: layer.reset_parameters(),
}


@pytest.mark.parametrize("fill", FILLED.values(), ids=FILLED)
@pytest.mark.parametrize("scaled", SCALES)
def test_every_way_to_fill_it_is_taken(scaled: Any, fill: Any):
    layer = layer_without_values(scaled)
    fill(layer)
    factor = scale(layer).detach()[:, None].double() if scaled else 1.0
    expected = factor * polar(free(layer), center=False)
    torch.testing.assert_close(weight(layer).detach().double(), expected, rtol=0, atol=1e-6)
    assert type(free(layer)) is nn.Parameter
    with torch.no_grad():  # from now on it is a V like any other, which may become NaN and is not refused for it
        free(layer).fill_(torch.nan)
    assert weight(layer).isnan().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_copy_in_another_type_is_refused_too(dtype: torch.dtype):
    layer = copy.deepcopy(on.OrthogonalLinear(8, 4, device="meta")).to(dtype).to_empty(device="cpu")
    with pytest.raises(ValueError, match="was made on the meta device"):
        weight(layer)


def test_a_scale_that_was_never_filled_is_refused():
    layer = layer_without_values("learned")
    with torch.no_grad():
        free(layer).normal_()
    with pytest.raises(ValueError, match="was made on the meta device"):
        weight(layer)


MODULES = {
    "linear": (lambda: nn.Linear(8, 4, device="meta"), (2, 8)),
    "convolution": (lambda: nn.Conv2d(3, 4, 3, device="meta"), (1, 3, 5, 5)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, device="meta"), (1, 3, 5, 5)),
}


@pytest.mark.parametrize(("make", "shape"), MODULES.values(), ids=MODULES)
def test_a_weight_on_the_meta_device_meets_no_values(make: Any, shape: tuple[int, ...]):
    layer: Any = on.orthogonal_weight_norm(make())
    assert layer(torch.empty(shape, device="meta")).is_meta
    layer.bias = nn.Parameter(torch.zeros(4))
    with pytest.raises(ValueError, match=r"weight of \w+ was made on the meta device"):
        layer(torch.randn(shape))


def test_the_diagnostics_name_it():
    model = nn.Sequential(layer_without_values())
    assert on.inspect(model).layers[0].error != on.inspect(model).layers[0].error  # NaN
    (problem,) = on.weight_problems(model)
    assert problem.startswith("0.weight is not finite")
