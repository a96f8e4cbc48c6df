"""`renormalize_`, `param_groups`, and what the size of V does to training."""

from collections.abc import Callable
from typing import Any

import pytest
import timm
import timm.optim
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
def test_renormalizing_keeps_the_function_and_sets_the_norms(kind: Kind, norm: float):
    layer, x = kind.build(scale="learned", dtype=torch.float64), torch.randn(kind.shape, dtype=torch.float64)
    with torch.no_grad():
        free(layer).mul_(7.0).add_(0.5)
        scale(layer).uniform_(1.0, 2.0)
    outputs, parameter, scales = layer(x).detach(), free(layer), scale(layer).detach().clone()
    assert on.renormalize_(layer, norm=norm) is layer
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


def test_renormalizing_makes_v_well_conditioned():
    model: Any = nn.Sequential(on.OrthogonalLinear(16, 8), nn.ReLU(), on.OrthogonalLinear(8, 6))
    with torch.no_grad():
        free(model[0])[0] = free(model[0])[1] + 1e-3 * free(model[0])[0]
    assert on.inspect(model).layers[0].condition_number > 100
    W = weight(model[0]).detach()
    on.renormalize_(model, norm=1.0)
    assert all(layer.condition_number == pytest.approx(1.0, abs=1e-5) for layer in on.inspect(model).layers)
    assert all(layer.v_norm == pytest.approx(1.0, abs=1e-5) for layer in on.inspect(model).layers)
    torch.testing.assert_close(weight(model[0]), W, rtol=0, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_renormalizing_without_a_norm_keeps_the_size_of_each_weight(kind: Kind):
    model, x = (
        nn.Sequential(kind.build(dtype=torch.float64), nn.Flatten()),
        torch.randn(kind.shape, dtype=torch.float64),
    )
    with torch.no_grad():
        free(model[0]).mul_(7.0).add_(0.5)
    outputs, size = model(x).detach(), free(model[0]).detach().norm()
    on.renormalize_(model)
    torch.testing.assert_close(model(x), outputs, rtol=0, atol=1e-12)
    torch.testing.assert_close(free(model[0]).detach().norm(), size, rtol=1e-12, atol=0)
    norms = row_norms(model[0])
    torch.testing.assert_close(norms, norms[:1].expand_as(norms), rtol=1e-12, atol=0)


def test_renormalizing_a_v_of_zeros_gives_rows_of_norm_one():
    layer = on.OrthogonalLinear(8, 4, dtype=torch.float64)
    with torch.no_grad():
        free(layer).zero_()
    torch.testing.assert_close(row_norms(on.renormalize_(layer)), torch.ones(4, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("norm", [1e-8, 1e-3, 1.0, 1e4, 1e5])
def test_a_norm_that_the_dtype_holds_is_set_to_rounding_and_another_refused(dtype: torch.dtype, norm: float):
    layer = on.OrthogonalLinear(64, 48, bias=False, dtype=dtype)
    before, W = free(layer).detach().clone(), weight(layer).detach().double()
    if dtype == torch.float16 and norm in (1e-8, 1e5):
        with pytest.raises(ValueError, match=r"^norm .*0\.00049 and 6\.6e\+04 for weight\b"):
            on.renormalize_(layer, norm=norm)
        assert torch.equal(free(layer), before)
        return
    on.renormalize_(layer, norm=norm)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(weight(layer).detach().double(), W, rtol=0, atol=max(2 * eps, 1e-5))
    torch.testing.assert_close(row_norms(layer).double(), torch.full((48,), norm).double(), rtol=2 * eps, atol=0)


@pytest.mark.parametrize("size", [1e-7, 2e4])
def test_a_size_of_v_that_float16_does_not_hold_is_refused(size: float):
    model: Any = nn.Sequential(on.OrthogonalLinear(64, 48, dtype=torch.float16))
    with torch.no_grad():
        free(model[0]).fill_(size).add_(size * torch.eye(48, 64))
    with pytest.raises(ValueError, match=r"0\.weight in torch\.float16.*norm=1"):
        on.renormalize_(model)
    on.renormalize_(model, norm=1.0)
    assert float(row_norms(model[0]).sub(1).abs().max()) < 2e-3


def test_renormalizing_gives_back_a_lost_direction():
    layer = on.OrthogonalLinear(8, 4)
    with torch.no_grad():
        free(layer)[0] = free(layer)[1]
    assert on.orthogonality_error(layer)["weight"] > 0.4
    on.renormalize_(layer)
    assert on.orthogonality_error(layer)["weight"] < 1e-5


def tied(first: dict[str, Any], second: dict[str, Any] | None) -> Any:
    """Two layers with one V, the second plain where it has no options."""
    model: Any = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    model[2].weight = model[0].weight
    on.orthogonal_weight_norm(model[0], **first)
    return model if second is None else (on.orthogonal_weight_norm(model[2], **second), model)[1]


def test_renormalizing_a_v_that_layers_share_keeps_what_each_computes():
    model, x = (
        tied({"scale": "learned"}, {"scale": 2.0, "method": "eigh"}).double(),
        torch.randn(3, 8, dtype=torch.float64),
    )
    outputs = model(x).detach()
    on.renormalize_(model, norm=3.0)
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
def test_renormalizing_refuses_a_v_that_is_read_in_two_ways(
    first: dict[str, Any], second: dict[str, Any] | None, message: str
):
    model = nn.Sequential(on.OrthogonalLinear(8, 8), tied(first, second))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match=message):
        on.renormalize_(model)
    assert all(torch.equal(parameter, old) for parameter, old in zip(model.parameters(), before, strict=True))


def test_renormalizing_makes_two_sizes_of_v_train_alike():
    x, target, results = torch.randn(32, 8, dtype=torch.float64), torch.randn(32, 4, dtype=torch.float64), []
    start = torch.randn(4, 8, dtype=torch.float64)
    for size in (1.0, 10.0):
        layer = on.OrthogonalLinear(8, 4, bias=False, dtype=torch.float64)
        layer.weight = size * start
        on.renormalize_(layer, norm=1.0)
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


def test_the_groups_of_timm_leave_v_out_where_the_guide_names_it():
    model: Any = timm.create_model("vit_tiny_patch16_224", num_classes=10, depth=1, img_size=32, patch_size=8)
    on.orthogonalize_(model, on.OrthogonalConfig(scale="learned"))
    left_out = {*model.no_weight_decay(), "*parametrizations.*.original"}
    groups = timm.optim.param_groups_weight_decay  # pyright: ignore[reportPrivateImportUsage]
    without, decayed = groups(model, 0.05, no_weight_decay_list=left_out)
    assert (without["weight_decay"], decayed["weight_decay"]) == (0.0, 0.05)
    assert [id(p) for p in decayed["params"]] == [id(model.head.weight)]
    _, free_group = on.param_groups(model)
    assert {id(p) for p in free_group["params"]} < {id(p) for p in without["params"]}


def test_param_groups_of_a_plain_or_tied_model():
    plain = nn.Linear(4, 4)
    assert [len(group["params"]) for group in on.param_groups(plain)] == [2, 0]
    torch.optim.SGD(on.param_groups(plain), lr=0.1)
    tied = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2))
    tied[1].weight = tied[0].weight
    groups = on.param_groups(on.orthogonalize_(tied))
    assert [len(group["params"]) for group in groups] == [4, 1]


def not_finite() -> nn.Module:
    model: Any = nn.Sequential(on.OrthogonalLinear(8, 4), on.OrthogonalLinear(4, 3))
    with torch.no_grad():
        free(model[1])[0, 0] = float("nan")
    return model


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "renormalize_ to zero": (
        lambda: on.renormalize_(on.OrthogonalLinear(8, 4), norm=0.0),
        ValueError,
        r"norm must be a positive number, or None; got 0\.0",
    ),
    "renormalize_ to infinity": (
        lambda: on.renormalize_(on.OrthogonalLinear(8, 4), norm=float("inf")),
        ValueError,
        r"norm must be a positive number, or None; got inf",
    ),
    "renormalize_ to text": (
        lambda: on.renormalize_(on.OrthogonalLinear(8, 4), norm="a"),  # type: ignore[arg-type]
        TypeError,
        r"norm must be a positive number, or None; got 'a'",
    ),
    "decay of text": (
        lambda: on.param_groups(nn.Linear(8, 4), weight_decay="a"),  # type: ignore[arg-type]
        TypeError,
        r"weight_decay must be a number that is not negative; got 'a'",
    ),
    "renormalize_ of a V that is not finite": (
        lambda: on.renormalize_(not_finite()),
        ValueError,
        r"1\.weight must have a finite V",
    ),
    "renormalize_ of a plain model": (
        lambda: on.renormalize_(nn.Linear(8, 4)),
        ValueError,
        r"this Linear has no orthogonal weight\. Call orthogonalize_ first",
    ),
    "renormalize_ on the meta device": (
        lambda: on.renormalize_(nn.Sequential(on.OrthogonalLinear(8, 4, device="meta"))),
        ValueError,
        r"0\.weight is on the meta device, which holds no values\. Call to_empty",
    ),
    "renormalize_ of no module": (lambda: on.renormalize_("model"), TypeError, r"torch\.nn\.Module; got str"),  # type: ignore[arg-type]
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
