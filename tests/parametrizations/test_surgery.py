"""What other code does to a computed weight, in depth: the kinds of it are the table of `tests/surgery`."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parametrize

import orthonorm as on
from orthogonal_layers import free, polar, scale, weight

SCALES = ["learned", "row_norms", 2.0, None]


def trained(scaled: Any, **options: Any) -> Any:
    """A layer whose V and scale are not those of its start."""
    layer = on.orthogonal_weight_norm(nn.Linear(8, 4), scale=scaled, **options)
    with torch.no_grad():
        free(layer).normal_()
        if isinstance(scaled, str):
            scale(layer).uniform_(0.5, 2.0)
    return layer


def state(layer: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in layer.state_dict().items()}


def unchanged(layer: nn.Module, before: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


@pytest.mark.parametrize("initial", ["orthonormal", "weight"])
@pytest.mark.parametrize("scaled", SCALES)
def test_case_26_a_transfer_leaves_two_layers_that_compute_the_same(scaled: Any, initial: Any):
    layer, x = trained(scaled, initial=initial), torch.randn(3, 8)
    output, before = layer(x).detach(), state(layer)
    other = nn.Linear(8, 4)
    parametrize.transfer_parametrizations_and_params(layer, other)
    other.bias = layer.bias
    assert torch.equal(layer(x), output)
    assert torch.equal(other(x), output)
    assert unchanged(layer, before)
    assert torch.equal(on.fold(other)(x), output)


@pytest.mark.parametrize("initial", ["orthonormal", "weight"])
def test_right_inverse_changes_nothing(initial: Any):
    layer = trained("row_norms", initial=initial)
    owner, before = layer.parametrizations.weight[0], state(layer)
    X = torch.randn(4, 8)
    copy = X.clone()
    V = owner.right_inverse(X)
    assert unchanged(layer, before)
    V.zero_()
    assert torch.equal(X, copy)


GRAPHS: dict[str, Callable[[], Tensor]] = {
    "a result": lambda: torch.randn(4, 8, requires_grad=True).tanh(),
    "a leaf": lambda: torch.randn(4, 8, requires_grad=True),
}


@pytest.mark.parametrize("make", GRAPHS.values(), ids=GRAPHS)
def test_case_26_a_tensor_that_requires_a_gradient_is_refused(make: Callable[[], Tensor]):
    layer = trained("learned")
    before, X = state(layer), make()
    with pytest.raises(ValueError, match=r"weight of Linear .*detach\(\).*functional_call"):
        layer.weight = X
    assert unchanged(layer, before)
    layer.weight = X.detach()  # the first cure
    torch.testing.assert_close(weight(layer).detach().double(), polar(X, center=False), rtol=0, atol=1e-6)
    with torch.no_grad():  # where nothing is differentiated, nothing is lost
        layer.weight = X


def test_case_26_a_weight_made_by_a_network_is_differentiated_through_the_key_of_v():
    layer = trained(None).double()
    before, made = state(layer), torch.randn(4, 8, dtype=torch.float64, requires_grad=True)
    x = torch.randn(3, 8, dtype=torch.float64)

    def loss(V: Tensor) -> Tensor:
        return functional_call(layer, {"parametrizations.weight.original": V}, (x,)).square().sum()

    assert torch.autograd.gradcheck(loss, made)
    assert unchanged(layer, before)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("transformed", [False, True])
def test_case_26_functional_call_by_the_plain_key_is_refused_and_changes_nothing(transformed: bool, graph: bool):
    model = nn.Sequential(trained("learned"), nn.Tanh(), nn.Linear(4, 4))
    before, x = state(model), torch.randn(3, 8)
    made = torch.randn(4, 8, requires_grad=graph)

    def call(W: Tensor) -> Tensor:
        tensors = {"2.bias": torch.ones(4), "0.bias": torch.zeros(4), "0.weight": W}
        return functional_call(model, tensors, (x,)).square().sum()

    with pytest.raises(
        ValueError, match=r"weight of Linear .*functional_call.*parametrizations\.weight\.original.*fold"
    ):
        torch.func.grad(call)(made) if transformed else call(made)
    assert unchanged(model, before)
    # The second cure: a folded copy, whose weight it is.
    plain: Any = on.fold(model)
    result = functional_call(plain, {"0.weight": made}, (x,))
    expected = plain[2](torch.tanh(nn.functional.linear(x, made, plain[0].bias)))
    torch.testing.assert_close(result, expected)


def test_case_26_a_parameter_in_the_place_of_the_weight_is_refused():
    layer = trained("learned")
    before, X = state(layer), nn.Parameter(torch.randn(4, 8))
    for assign in (lambda: setattr(layer, "weight", X), lambda: layer.register_parameter("weight", X)):
        with pytest.raises(ValueError, match=r"weight of Linear .*layer\.weight = parameter\.detach\(\)"):
            assign()
    assert unchanged(layer, before)
    layer.bias = nn.Parameter(torch.zeros(4))  # other names are torch's
    layer.weight = X.detach()
    torch.testing.assert_close(weight(layer).detach().double(), polar(X, center=False), rtol=0, atol=1e-6)
    on.fold_(layer)
    layer.weight = X
    assert layer.weight is X


def test_a_recurrent_layer_refuses_a_parameter_for_its_orthogonal_weight_alone():
    layer: Any = on.orthogonalize_(nn.LSTM(5, 4), None, lambda *_: True)
    with pytest.raises(ValueError, match="weight_hh_l0"):
        layer.weight_hh_l0 = nn.Parameter(torch.zeros(16, 4))
    layer.weight_ih_l0 = nn.Parameter(torch.zeros(16, 5))
    assert layer(torch.randn(2, 1, 5))[0].shape == (2, 1, 4)


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x

    def right_inverse(self, x: Tensor) -> Tensor:
        return x / 2


def test_a_parametrization_stacked_above_keeps_its_part_of_the_scale():
    layer = trained("row_norms")
    parametrize.register_parametrization(layer, "weight", Doubled())
    X = torch.randn(4, 8)
    layer.weight = X
    torch.testing.assert_close(scale(layer).detach(), X.norm(dim=1) / 2)
    torch.testing.assert_close(weight(layer).detach().norm(dim=1), X.norm(dim=1))
