"""`recenter_`, `param_groups`, and what the size of V does to training."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import orthonorm as on
from orthogonal_layers import KINDS, Kind, filters, free, map_of, name_of, scale, weight


def row_norms(layer: Any) -> torch.Tensor:
    """The norms of V's rows, with V in the place of the weight of a plain layer."""
    plain = on.fold(layer)
    plain.weight = nn.Parameter(free(layer).detach())
    return filters(plain).norm(dim=1)


@pytest.mark.parametrize("norm", [1.0, 3.0])
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_recentering_keeps_the_function_and_sets_the_norms(kind: Kind, norm: float):
    layer, x = kind.build(scale="learned", dtype=torch.float64), torch.randn(kind.shape, dtype=torch.float64)
    with torch.no_grad():
        free(layer).mul_(7.0).add_(0.5)
        scale(layer).uniform_(1.0, 2.0)
    outputs, parameter, scales = layer(x).detach(), free(layer), scale(layer).detach().clone()
    assert on.recenter_(layer, norm=norm) is layer
    torch.testing.assert_close(layer(x), outputs, rtol=0, atol=1e-12)
    torch.testing.assert_close(row_norms(layer), torch.full_like(scales, norm), rtol=1e-12, atol=0)
    torch.testing.assert_close(free(layer), norm * weight(layer) / _spread(kind, layer, scales), rtol=0, atol=1e-12)
    assert free(layer) is parameter
    assert torch.equal(scale(layer), scales)


def _spread(kind: Kind, layer: Any, scales: torch.Tensor) -> torch.Tensor:
    """The scale of each output channel in the shape of the weight."""
    plain = kind.build_plain(dtype=torch.float64)
    trailing = [1] * (plain.weight.ndim - 2)
    if not map_of(layer).transposed:
        return scales.view(-1, 1, *trailing)
    per_group = scales.view(map_of(layer).groups, 1, -1)  # (in, out/groups): the inputs of a group share its outputs
    return per_group.expand(-1, plain.in_channels // plain.groups, -1).reshape(plain.in_channels, -1, *trailing)


def test_recentering_makes_v_well_conditioned():
    model: Any = nn.Sequential(on.OrthogonalLinear(16, 8), nn.ReLU(), on.OrthogonalLinear(8, 6))
    with torch.no_grad():
        free(model[0])[0] = free(model[0])[1] + 1e-3 * free(model[0])[0]
    assert on.inspect(model).layers[0].condition > 100
    W = weight(model[0]).detach()
    on.recenter_(model)
    assert all(layer.condition == pytest.approx(1.0, abs=1e-5) for layer in on.inspect(model).layers)
    assert all(layer.norm == pytest.approx(1.0, abs=1e-5) for layer in on.inspect(model).layers)
    torch.testing.assert_close(weight(model[0]), W, rtol=0, atol=2e-5)


def test_recentering_gives_back_a_lost_direction():
    layer = on.OrthogonalLinear(8, 4)
    with torch.no_grad():
        free(layer)[0] = free(layer)[1]
    assert on.orthogonality_error(layer)["weight"] > 0.4
    on.recenter_(layer)
    assert on.orthogonality_error(layer)["weight"] < 1e-6


def tied(first: dict[str, Any], second: dict[str, Any] | None) -> Any:
    """Two layers with one V, the second plain where it has no options."""
    model: Any = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    model[2].weight = model[0].weight
    on.orthogonal_weight_norm(model[0], **first)
    return model if second is None else (on.orthogonal_weight_norm(model[2], **second), model)[1]


def test_recentering_a_v_that_layers_share_keeps_what_each_computes():
    model, x = (
        tied({"scale": "learned"}, {"scale": 2.0, "method": "eigh"}).double(),
        torch.randn(3, 8, dtype=torch.float64),
    )
    outputs = model(x).detach()
    on.recenter_(model, norm=3.0)
    torch.testing.assert_close(model(x), outputs, rtol=0, atol=1e-12)
    torch.testing.assert_close(free(model[0]).norm(dim=1), torch.full((8,), 3.0, dtype=torch.float64))


READ_IN_TWO_WAYS: dict[str, tuple[dict[str, Any], dict[str, Any] | None, str]] = {
    "as it is": (
        {},
        None,
        r"^1\.0\.weight shares its V with 1\.2\.weight, .* both compute: 1\.2\.weight reads V itself\. Fold the model",
    ),
    "in other groups": (
        {"group_size": 2},
        {"group_size": 4},
        r"compute: 1\.2\.weight makes other orthonormal rows of it\.",
    ),
    "with centring": ({"group_size": 4}, {"group_size": 4, "center": True}, r"makes other orthonormal rows of it"),
}


@pytest.mark.parametrize(("first", "second", "message"), READ_IN_TWO_WAYS.values(), ids=READ_IN_TWO_WAYS)
def test_recentering_refuses_a_v_that_is_read_in_two_ways(
    first: dict[str, Any], second: dict[str, Any] | None, message: str
):
    model = nn.Sequential(on.OrthogonalLinear(8, 8), tied(first, second))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match=message):
        on.recenter_(model)
    assert all(torch.equal(parameter, old) for parameter, old in zip(model.parameters(), before, strict=True))


def test_the_effective_rate_is_the_rate_over_the_square_of_v():
    x, target, steps = torch.randn(32, 8, dtype=torch.float64), torch.randn(32, 4, dtype=torch.float64), []
    start = torch.randn(4, 8, dtype=torch.float64)
    for size in (1.0, 10.0):
        layer = on.OrthogonalLinear(8, 4, bias=False, dtype=torch.float64)
        layer.weight = size * start
        before = weight(layer).detach().clone()
        optimizer = torch.optim.SGD([free(layer)], lr=1e-4)
        nn.functional.mse_loss(layer(x), target).backward()
        optimizer.step()
        steps.append(float((weight(layer).detach() - before).norm()))
    assert steps[0] / steps[1] == pytest.approx(100.0, rel=1e-2)


def test_recentering_makes_two_sizes_of_v_train_alike():
    x, target, results = torch.randn(32, 8, dtype=torch.float64), torch.randn(32, 4, dtype=torch.float64), []
    start = torch.randn(4, 8, dtype=torch.float64)
    for size in (1.0, 10.0):
        layer = on.OrthogonalLinear(8, 4, bias=False, dtype=torch.float64)
        layer.weight = size * start
        on.recenter_(layer)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.mse_loss(layer(x), target).backward()
            optimizer.step()
        results.append(weight(layer).detach())
    torch.testing.assert_close(results[0], results[1], rtol=0, atol=1e-12)


def test_param_groups_keep_decay_off_v():
    model: Any = nn.Sequential(
        on.OrthogonalConv1d(3, 6, 3, scale="learned"), nn.Flatten(), on.OrthogonalLinear(12, 5), nn.Linear(5, 2)
    )
    model[3].bias.requires_grad_(False)
    rest, free_group = on.param_groups(model, weight_decay=5e-4)
    assert [id(p) for p in free_group["params"]] == [id(free(model[0])), id(free(model[2]))]
    expected = [model[0].bias, scale(model[0]), model[2].bias, model[3].weight]
    assert {id(p) for p in rest["params"]} == {id(p) for p in expected}
    assert (rest["weight_decay"], free_group["weight_decay"]) == (5e-4, 0.0)
    optimizer = torch.optim.SGD([rest, free_group], lr=1.0)
    V, plain = free(model[0]).detach().clone(), model[3].weight.detach().clone()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert torch.equal(free(model[0]), V)
    torch.testing.assert_close(model[3].weight, (1 - 5e-4) * plain)


def test_param_groups_of_a_plain_or_tied_model():
    plain = nn.Linear(4, 4)
    assert [len(group["params"]) for group in on.param_groups(plain)] == [2, 0]
    torch.optim.SGD(on.param_groups(plain), lr=0.1)
    tied = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2))
    tied[1].weight = tied[0].weight
    groups = on.param_groups(on.orthogonalize_(tied))
    assert [len(group["params"]) for group in groups] == [4, 1]


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "recenter_ to zero": (
        lambda: on.recenter_(on.OrthogonalLinear(8, 4), norm=0.0),
        ValueError,
        r"norm must be a positive number; got 0\.0",
    ),
    "recenter_ to infinity": (
        lambda: on.recenter_(on.OrthogonalLinear(8, 4), norm=float("inf")),
        ValueError,
        r"norm must be a positive number; got inf",
    ),
    "recenter_ to text": (
        lambda: on.recenter_(on.OrthogonalLinear(8, 4), norm="a"),  # type: ignore[arg-type]
        TypeError,
        r"norm must be a positive number; got 'a'",
    ),
    "decay of text": (
        lambda: on.param_groups(nn.Linear(8, 4), weight_decay="a"),  # type: ignore[arg-type]
        TypeError,
        r"weight_decay must be a number that is not negative; got 'a'",
    ),
    "recenter_ of a plain model": (
        lambda: on.recenter_(nn.Linear(8, 4)),
        ValueError,
        r"this Linear has no orthogonal weight\. Call orthogonalize_ first",
    ),
    "recenter_ on the meta device": (
        lambda: on.recenter_(nn.Sequential(on.OrthogonalLinear(8, 4, device="meta"))),
        ValueError,
        r"0\.weight is on the meta device, which holds no values\. Call to_empty",
    ),
    "recenter_ of no module": (lambda: on.recenter_("model"), TypeError, r"torch\.nn\.Module; got str"),  # type: ignore[arg-type]
    "decay below zero": (
        lambda: on.param_groups(nn.Linear(8, 4), weight_decay=-1.0),
        ValueError,
        r"weight_decay must not be negative; got -1\.0",
    ),
    "decay of NaN": (
        lambda: on.param_groups(nn.Linear(8, 4), weight_decay=float("nan")),
        ValueError,
        r"weight_decay must not be negative; got nan",
    ),
    "param_groups of no module": (lambda: on.param_groups([1]), TypeError, r"torch\.nn\.Module; got list"),  # type: ignore[arg-type]
}


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize(("call", "exception", "message"), WRONG.values(), ids=WRONG)
def test_wrong_inputs_are_refused(call: Callable[[], Any], exception: type[Exception], message: str):
    with pytest.raises(exception, match=message):
        call()
