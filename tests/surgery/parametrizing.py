"""Other parametrizations above and below ours, transfer and removal, and torch's older hooks."""

import copy
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import oracle
import orthonorm as on
from orthogonal_layers import free
from surgery.rows import Row, affected, assert_right, layer_of, weight_from

__all__ = ["PARAMETRIZATIONS"]


def transferred() -> None:
    layer, other = layer_of(), nn.Linear(8, 4).double()
    before = layer.state_dict()
    parametrize.transfer_parametrizations_and_params(layer, other)
    assert_right(layer)
    assert_right(other, free(layer), affected(layer)[1])
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def removed() -> None:
    layer = layer_of()
    V, scale = (value.detach().clone() for value in affected(layer))
    parameter = free(layer)
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear
    assert layer.weight is parameter
    torch.testing.assert_close(layer.weight.detach(), weight_from(V, scale))
    layer.load_state_dict(nn.Linear(8, 4).state_dict())
    layer.weight = nn.Parameter(V)  # nothing of ours is left in the way
    assert set(layer.state_dict()) == {"weight", "bias"}


def removed_from_a_copy() -> None:
    layer = layer_of()
    before = layer.weight.detach().clone()
    parametrize.remove_parametrizations(copy.deepcopy(layer), "weight")
    with suppress(AttributeError):
        assert not torch.equal(layer.weight, before)
    layer = layer_of()
    before = layer.weight.detach().clone()
    assert torch.equal(on.fold(layer).weight, before)
    assert torch.equal(layer.weight, before)


def removed_to_V() -> None:
    layer = layer_of()
    V = free(layer).detach().clone()
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert type(layer) is nn.Linear
    assert torch.equal(layer.weight, V)


def spectral_above() -> None:
    layer = layer_of()
    V, scale = affected(layer)
    parametrizations.spectral_norm(layer, n_power_iterations=500)
    for _ in range(5):
        layer.train()(torch.randn(2, 8).double())
    W = weight_from(V.detach(), scale.detach())
    torch.testing.assert_close(layer.eval().weight, W / torch.linalg.matrix_norm(W, 2), rtol=1e-6, atol=1e-9)
    layer.weight.square().sum().backward()
    assert V.grad is not None
    assert float(V.grad.abs().max()) > 0
    assert "_SpectralNorm" in on.inspect(layer).note


def normed_above(layer: Any) -> None:
    parametrizations.weight_norm(layer)
    layer(torch.zeros(1, 8).double())


def orthogonal_above(layer: Any) -> None:
    parametrizations.orthogonal(layer)
    layer(torch.zeros(1, 8).double())


def undone(act: Callable[[Any], None], error: type[Exception]) -> Callable[[], None]:
    """Does what raises, takes it back and asks for the layer as it was."""

    def check() -> None:
        layer = layer_of()
        V, scale = (value.detach().clone() for value in affected(layer))
        with suppress(error):
            act(layer)
        del layer.parametrizations.weight[1]
        assert_right(layer, V, scale)

    return check


def has_scale() -> None:
    assert_right(layer_of("learned"))  # g times rows of norm 1: what weight normalization gives


def below(function: Any) -> Any:
    def convert(_: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # torch's older functions
            layer = function(nn.Linear(8, 4), "weight")
        on.orthogonal_weight_norm(layer)

    return convert


def removed_first() -> None:
    layer: Any = parametrizations.weight_norm(nn.Linear(8, 4).double())
    X = layer.weight.detach().clone()
    parametrize.remove_parametrizations(layer, "weight")
    on.orthogonal_weight_norm(layer)
    torch.testing.assert_close(layer.weight, oracle.polar_factor(X))
    assert_right(layer)


def older(function: Any) -> Any:
    def act(layer: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            function(layer)

    return act


def twice() -> None:
    layer: Any = on.fold(layer_of())
    X = layer.weight.detach().clone()
    on.orthogonal_weight_norm(layer)
    assert_right(layer, X)


def twice_by_torch() -> None:
    layer = layer_of(None)
    parametrize.register_parametrization(layer, "weight", on.OrthogonalWeightNorm(free(layer).detach()))
    assert_right(layer)  # an orthonormal matrix is its own nearest one, and so is the derivative along them


def pruned_before(_: Any) -> None:
    on.orthogonal_weight_norm(prune.l1_unstructured(nn.Linear(8, 4), "weight", amount=0.5))


NEWER = "use `torch.nn.utils.parametrizations`"
PARAMETRIZATIONS = (
    Row(
        "`parametrize.transfer_parametrizations_and_params(layer, other)`",
        "both layers compute the same, from one scale",
        transferred,
    ),
    Row('`parametrize.remove_parametrizations(layer, "weight")`', "a plain layer with the weight `W`", removed),
    Row(
        '`parametrize.remove_parametrizations(copy.deepcopy(layer), "weight")`',
        "the layer itself loses its weight too, since torch lets both share a class",
        removed_from_a_copy,
        cure="`orthonorm.fold(layer)`, which is a plain copy",
    ),
    Row(
        "the same with `leave_parametrized=False`",
        "a plain layer with the weight `V`, which is not orthogonal",
        removed_to_V,
        cure="`orthonorm.fold_(layer)` leaves `W`",
    ),
    Row(
        "`parametrizations.spectral_norm(layer)` on an orthogonal layer",
        "`W` divided by its norm; `inspect` names it",
        spectral_above,
    ),
    Row(
        "`parametrizations.weight_norm(layer)` on an orthogonal layer",
        "at the next read",
        undone(normed_above, TypeError),
        act=normed_above,
        raises=TypeError,
        names=("weight_v",),
        by="torch",
        cure='`scale="learned"` does the same; `del layer.parametrizations.weight[1]` undoes it',
        intact=False,
    ),
    Row(
        "`parametrizations.orthogonal(layer)` on an orthogonal layer",
        "at the next read",
        undone(orthogonal_above, TypeError),
        act=orthogonal_above,
        raises=TypeError,
        names=("NoneType",),
        by="torch",
        cure="leave it out; `del layer.parametrizations.weight[1]` undoes it",
        intact=False,
    ),
    Row(
        "`orthogonal_weight_norm` on a layer with torch's `weight_norm`",
        "",
        removed_first,
        act=below(parametrizations.weight_norm),
        raises=ValueError,
        names=("_WeightNorm", "Remove that one first"),
        cure='`parametrize.remove_parametrizations(layer, "weight")` first',
    ),
    Row(
        "`orthogonal_weight_norm` on a layer with the older `weight_norm`",
        "",
        removed_first,
        act=below(nn.utils.weight_norm),
        raises=ValueError,
        names=("weight_norm", "torch.nn.utils.remove_weight_norm"),
        cure="`torch.nn.utils.remove_weight_norm(layer)` first",
    ),
    Row(
        "`orthogonal_weight_norm` on a pruned layer",
        "",
        removed_first,
        act=pruned_before,
        raises=ValueError,
        names=("pruning", "torch.nn.utils.prune.remove"),
        cure='`prune.remove(layer, "weight")` first',
    ),
    Row(
        "`torch.nn.utils.weight_norm(layer)`, the older one",
        "",
        has_scale,
        act=older(nn.utils.weight_norm),
        raises=KeyError,
        names=("weight",),
        by="torch",
        cure='`scale="learned"` does the same',
    ),
    Row(
        "`torch.nn.utils.spectral_norm(layer)`, the older one",
        "",
        spectral_above,
        act=older(nn.utils.spectral_norm),
        raises=KeyError,
        names=("weight",),
        by="torch",
        cure=NEWER,
    ),
    Row(
        "`orthogonal_weight_norm` twice",
        "",
        twice,
        act=lambda layer: on.orthogonal_weight_norm(layer),
        raises=ValueError,
        names=("OrthogonalWeightNorm", "orthonorm.fold_"),
        cure="fold first",
    ),
    Row(
        "a second `OrthogonalWeightNorm` by `register_parametrization`",
        "the same weight, computed twice",
        twice_by_torch,
    ),
)
