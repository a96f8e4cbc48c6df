"""Assignments to a computed weight, values made by a network, and weights that layers share."""

import torch
from torch import Tensor, nn
from torch.func import functional_call

import orthonorm as on
from orthogonal_layers import free
from surgery.rows import Row, assert_right, layer_of, weight_from

__all__ = ["ASSIGNMENTS", "TIES"]

KEY = "parametrizations.weight.original"


def matrix() -> Tensor:
    return torch.randn(4, 8).double()


def assign(layer, value: Tensor) -> None:
    layer.weight = value


def assigned_values() -> None:
    layer, X = layer_of(), matrix()
    layer.weight = X
    torch.testing.assert_close(layer.weight, weight_from(X))
    assert_right(layer)


def assigned_detached() -> None:
    layer, X = layer_of(), matrix().requires_grad_()
    layer.weight = X.detach()
    assert_right(layer, X)


def assigned_parameter() -> None:
    layer, X = layer_of(), nn.Parameter(matrix())
    layer.weight = X.detach()
    assert_right(layer, X)
    plain = on.fold(layer_of())
    plain.weight = X
    assert plain.weight is X


def call_by_key_of_V() -> None:
    layer, V = layer_of(None), matrix().requires_grad_()
    held, x = free(layer).detach().clone(), torch.randn(3, 8).double()
    output = functional_call(layer, {KEY: V}, (x,))
    torch.testing.assert_close(output, x @ weight_from(V.detach()).T + layer.bias)
    assert torch.autograd.gradcheck(lambda V: functional_call(layer, {KEY: V}, (x,)).square().sum(), V)
    assert torch.equal(free(layer), held)


def wrote_elsewhere() -> None:
    layer = layer_of()
    torch.nn.init.xavier_uniform_(layer.weight)
    layer.weight.data.zero_()
    torch.utils.swap_tensors(layer.weight, matrix())
    assert_right(layer)  # what it was: nothing was written
    X = torch.nn.init.xavier_uniform_(torch.empty(4, 8).double())
    layer.weight = X
    assert_right(layer, X)


ASSIGNMENTS = (
    Row("`layer.weight = X`", "`V` and a learned scale start from the values", assigned_values),
    Row(
        "`layer.weight = tensor_with_a_graph`",
        "",
        assigned_detached,
        act=lambda layer: assign(layer, matrix().requires_grad_().tanh()),
        raises=ValueError,
        names=("weight of Linear", "requires a gradient", "detach()", KEY),
        cure="assign `value.detach()`, or pass the tensor as `V` to `functional_call`",
    ),
    Row(
        "`layer.weight = nn.Parameter(X)`",
        "",
        assigned_parameter,
        act=lambda layer: assign(layer, nn.Parameter(matrix())),
        raises=ValueError,
        names=("weight of Linear", "layer.weight = parameter.detach()", "orthonorm.fold_"),
        cure="assign the values, or fold first",
    ),
    Row(
        '`functional_call(layer, {"weight": W}, x)`',
        "",
        call_by_key_of_V,
        act=lambda layer: functional_call(layer, {"weight": matrix()}, (torch.randn(3, 8).double(),)),
        raises=ValueError,
        names=("functional_call", KEY, "orthonorm.fold"),
        cure="use the key of `V`, or a folded copy",
    ),
    Row(
        f'`functional_call(layer, {{"{KEY}": V}}, x)`',
        "computes with the given `V` and differentiates through it; the layer keeps its own",
        call_by_key_of_V,
    ),
    Row(
        "`init.xavier_uniform_(layer.weight)`, `layer.weight.data.zero_()`, `swap_tensors(layer.weight, X)`",
        "nothing is written: `layer.weight` is a result, and torch shows no such write to anybody",
        wrote_elsewhere,
        cure="`layer.weight = X`, or `layer.reset_parameters()`",
    ),
)


def shared_V() -> None:
    a, b = layer_of(None), layer_of(None)
    b.parametrizations.weight.original = a.parametrizations.weight.original
    tied(a, b)


def shared_parametrizations() -> None:
    a, b = layer_of(), layer_of()
    b.parametrizations = a.parametrizations
    tied(a, b)


def tied(a, b) -> None:
    with torch.no_grad():
        free(a).normal_()
    assert_right(b, free(a))
    model = nn.Sequential(a, b)
    assert len([p for p in model.parameters() if p is free(a)]) == 1
    on.renormalize_(model)
    assert_right(b, free(a))
    W = a.weight.detach().clone()
    plain = on.fold(model)
    assert plain[0].weight is plain[1].weight  # type: ignore[index]
    assert_right(a)  # the copy has taken nothing from it
    on.fold_(model)
    assert a.weight is b.weight
    assert torch.equal(a.weight, W)


def one_module_twice() -> None:
    layer = layer_of(outputs=8)
    model, x = nn.Sequential(layer, nn.Tanh(), layer), torch.randn(3, 8).double()
    plain = on.fold(model)
    torch.testing.assert_close(plain(x), model(x))
    assert plain[0] is plain[2]  # type: ignore[index]


def tied_before() -> None:
    a, b = nn.Linear(8, 4).double(), nn.Linear(8, 4).double()
    b.weight = a.weight
    model = on.orthogonalize_(nn.Sequential(a, b), filter_fn=lambda module, _: isinstance(module, nn.Linear))
    assert free(a) is free(b)
    tied(*model)  # type: ignore[misc]


def copied() -> None:
    layer, plain = layer_of(), nn.Linear(8, 4).double()
    plain.weight = nn.Parameter(layer.weight)
    before = plain.weight.detach().clone()
    with torch.no_grad():
        free(layer).normal_()
    assert torch.equal(plain.weight, before)
    tied_before()


TIE_CURE = "tie the layers before `orthogonalize_`, or share `V`, as below"
TIES = (
    Row(
        "`b.weight = a.weight`, both orthogonal",
        "",
        shared_V,
        act=lambda layer: assign(layer, layer_of().weight),
        raises=ValueError,
        names=("weight of Linear", "requires a gradient"),
        cure=TIE_CURE,
    ),
    Row(
        "`plain.weight = layer.weight`",
        "",
        tied_before,
        act=lambda layer: setattr(nn.Linear(8, 4), "weight", layer.weight),
        raises=TypeError,
        names=("'weight'", "torch.nn.Parameter"),
        by="torch",
        cure=TIE_CURE,
    ),
    Row("`plain.weight = nn.Parameter(layer.weight)`", "a copy of the values, not tied", copied, cure=TIE_CURE),
    Row("layers tied before `orthogonalize_`", "they stay tied, folded too", tied_before),
    Row(
        f"`b.{KEY} = a.{KEY}`",
        "one `V`, one gradient, and one parameter when folded",
        shared_V,
    ),
    Row("`b.parametrizations = a.parametrizations`", "one `V` and one scale, folded too", shared_parametrizations),
    Row("one module in two places", "one weight, folded too", one_module_twice),
)
