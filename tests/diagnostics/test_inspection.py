"""The diagnostics on weights whose error, condition and size are known."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import orthonorm as on
from orthogonal_layers import KINDS, Kind, error_of_rows, filters, free, map_of, matrix, name_of, scale, weight
from orthonorm.diagnostics._singular_values import largest_singular_value

# Below 1024 eps of the largest, an eigenvalue of V V^T counts as that much, so a singular value of V that is r times
# the square root of that floor comes out as a singular value r of W.
FLOOR = math.sqrt(1024 * torch.finfo(torch.float64).eps)


def layer_of_error(error: float, *, groups: int = 2, scaled: Any = None) -> on.OrthogonalLinear:
    """A layer whose last group has |W W^T - I| = error: V is diagonal there, its last entry below the floor."""
    layer = on.OrthogonalLinear(4, 3 * groups, center=False, group_size=3, scale=scaled, method="eigh")
    with torch.no_grad():
        free(layer).zero_()
        for k in range(groups):
            free(layer)[3 * k : 3 * k + 3, :3] = torch.eye(3)
        free(layer)[-1, 2] = 1.0 if error == 0 else FLOOR * math.sqrt(1 - error)
    return layer


@pytest.mark.parametrize("error", [0.0, 1e-3, 0.5])
@pytest.mark.parametrize("scaled", [None, "learned", 3.0])
def test_the_error_is_the_known_one(error: float, scaled: Any):
    layer = layer_of_error(error, scaled=scaled)
    assert on.orthogonality_error(layer) == {"weight": pytest.approx(error, abs=1e-7)}
    assert on.inspect(layer).layers[0].error == pytest.approx(error, abs=1e-7)
    unit = filters(layer) / filters(layer).norm(dim=1).max() if scaled else filters(layer)
    assert error_of_rows(unit, (3, 3)) == pytest.approx(error, abs=1e-6)


def test_the_error_is_the_worst_groups_wherever_that_is():
    layer = layer_of_error(0.5)
    with torch.no_grad():
        free(layer).copy_(free(layer).flip(0))
    assert on.orthogonality_error(layer)["weight"] == pytest.approx(0.5, abs=1e-7)
    grouped = on.OrthogonalConv1d(6, 8, 3, groups=2, scale=2.0, center=True)
    with torch.no_grad():
        free(grouped)[4:] = 1.0  # the second convolution group is constant: centred, nothing is left
    assert on.orthogonality_error(grouped)["weight"] == pytest.approx(1.0, abs=1e-6)
    assert on.inspect(grouped).layers[0].condition_number > 1e6


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_has_an_error_of_nan(bad: float):
    layer = layer_of_error(0.0)
    with torch.no_grad():
        free(layer)[0, 0] = bad
    assert math.isnan(on.orthogonality_error(layer)["weight"])
    report = on.inspect(layer).layers[0]
    assert math.isnan(report.error)
    assert math.isnan(report.condition_number)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("row", [0, 5])
def test_an_ill_group_does_not_hide_one_that_is_not_finite(bad: float, row: int):
    layer = on.OrthogonalLinear(4, 6, center=False, group_size=3)
    with torch.no_grad():
        free(layer)[row, 0] = bad
    assert math.isnan(on.inspect(layer).layers[0].condition_number)
    assert math.isnan(on.orthogonality_error(layer)["weight"])


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_the_error_of_every_kind_of_layer_is_small_and_not_zero(kind: Kind):
    layer = kind.build(scale="learned")
    error = on.orthogonality_error(layer)["weight"]
    with torch.no_grad():
        assert error == pytest.approx(error_of_rows(filters(layer), kind.sizes), abs=1e-6)
    half = on.orthogonality_error(layer.to(torch.bfloat16))["weight"]
    assert 1e-4 < half < 3e-2  # of the weight as the layer uses it, in its own type


def test_keys_are_those_of_the_plain_model_in_its_order():
    model = nn.Sequential(nn.Linear(8, 8), nn.Sequential(nn.ReLU(), nn.Conv1d(4, 4, 3)), nn.LSTM(3, 5))
    lstm: Any = model[2]
    on.orthogonalize_(model, filter_fn=lambda module, _: isinstance(module, nn.Linear | nn.Conv1d))
    on.orthogonal_weight_norm(lstm, "weight_hh_l0", blocks=4, center=False)
    assert list(on.orthogonality_error(model)) == ["0.weight", "1.1.weight", "2.weight_hh_l0"]
    assert [layer.weight for layer in on.inspect(model).layers] == ["0.weight", "1.1.weight", "2.weight_hh_l0"]
    assert set(on.orthogonality_error(model)) <= set(on.fold(model).state_dict())
    assert list(on.orthogonality_error(on.OrthogonalLinear(8, 4))) == ["weight"]


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_condition_and_norm_are_numpys(kind: Kind, center: bool):
    layer = kind.build(center=center, group_size=min(4, *kind.sizes))
    sizes = map_of(layer).sizes * getattr(layer, "groups", 1)
    with torch.no_grad():
        free(layer).mul_(3.0).add_(0.7)
    plain = kind.build_plain()
    with torch.no_grad():
        plain.weight.copy_(free(layer))
    conditions, squares = [], []
    for rows in filters(plain).double().split(sizes):
        V = rows[:, rows.abs().sum(0) > 0].numpy()
        squares += list((V**2).sum(1))
        conditions.append(np.linalg.cond(V - V.mean(1, keepdims=True) if center else V))
    report = on.inspect(layer).layers[0]
    assert report.condition_number == pytest.approx(max(conditions), rel=1e-6)
    assert report.v_norm == pytest.approx(math.sqrt(np.mean(squares)), rel=1e-6)
    assert report.shape == tuple(plain.weight.shape)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_the_norm_of_w_is_that_of_its_filters_by_numpy(kind: Kind, scaled: bool):
    layer = kind.build(scale="learned" if scaled else None)
    if scaled:
        with torch.no_grad():
            scale(layer).uniform_(0.5, 2.0)
    norm = np.linalg.svd(filters(layer).double().numpy(), compute_uv=False)[0]
    assert on.inspect(layer).layers[0].w_norm == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize("group_size", [32, 64])
def test_case_33_groups_of_a_square_layer_are_orthonormal_and_together_longer(group_size: int):
    report = on.inspect(on.OrthogonalLinear(64, 64, center=False, group_size=group_size)).layers[0]
    assert report.error < 1e-5
    assert len(report.groups) == 64 // group_size
    expected = 1.0 if group_size == 64 else np.sqrt(2)  # two subspaces of half the dimension nearly share a direction
    assert report.w_norm == pytest.approx(expected, rel=1e-3)


def spectra() -> dict[str, torch.Tensor]:
    decay = torch.linspace(1, 0.5, 1100, dtype=torch.float64) ** 4
    return {
        "isometry": torch.eye(1100, 1300, dtype=torch.float64)[torch.randperm(1100)],
        "dense": matrix(1100, 1100, decay),
        "Gaussian": torch.randn(1300, 1100, dtype=torch.float64),
        "groups": on.functional.orthonormalize(
            torch.randn(1100, 1100, dtype=torch.float64), center=False, group_size=64
        ),
        "one row": torch.cat([torch.ones(1, 1100), torch.zeros(1100, 1100)]).double(),
        "huge": 1e200 * torch.randn(1030, 1030, dtype=torch.float64),
        "tiny": 1e-200 * torch.randn(40, 60, dtype=torch.float64),
        "zero": torch.zeros(3, 4, dtype=torch.float64),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", spectra())
def test_the_largest_singular_value_is_lapacks_for_small_and_large_matrices(name: str):
    X = spectra()[name]
    expected = float(torch.linalg.svdvals(X)[0])
    assert largest_singular_value(X) == pytest.approx(expected, rel=1e-4, abs=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_has_a_norm_of_nan(bad: float):
    layer = on.OrthogonalLinear(8, 6, group_size=3)
    with torch.no_grad():
        free(layer)[5, 0] = bad
    assert math.isnan(on.inspect(layer).layers[0].w_norm)


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6])
def test_a_chosen_condition_is_reported(condition: float):
    layer = on.OrthogonalLinear(16, 8, dtype=torch.float64, center=True)
    values = torch.logspace(0, -math.log10(condition), 8, dtype=torch.float64)
    with torch.no_grad():
        free(layer).copy_(5 * matrix(8, 16, values) + 2.0)
    assert on.inspect(layer).layers[0].condition_number == pytest.approx(condition, rel=1e-6)


def test_the_report_says_the_groups_and_the_scale():
    model: Any = nn.Sequential(
        on.OrthogonalLinear(8, 8, center=True),
        on.OrthogonalLinear(8, 4, scale=2.0),
        on.OrthogonalLinear(8, 3, scale="learned"),
    )
    with torch.no_grad():
        scale(model[2]).copy_(torch.tensor([0.5, 3.0, 1.0]))
    layers = on.inspect(model).layers
    assert [layer.groups for layer in layers] == [(4, 4), (4,), (3,)]
    assert [layer.scale for layer in layers] == [None, (2.0, 2.0), (0.5, 3.0)]
    convolution = on.OrthogonalConv2d(4, 6, 3, groups=2, group_size=2)
    assert on.inspect(convolution).layers[0].groups == (2, 1, 2, 1)


def test_the_report_says_that_columns_are_orthonormal():
    model: Any = nn.Sequential(
        on.OrthogonalLinear(6, 20, tall="columns"), on.OrthogonalLinear(6, 20, tall="columns", blocks=2)
    )
    inspection = on.inspect(model)
    assert [(layer.groups, layer.columns) for layer in inspection.layers] == [((6,), True), ((6, 6), True)]
    assert "1 block of 6 columns" in str(inspection)
    assert "2 blocks of 6 columns" in str(inspection)


def test_the_report_prints_as_a_table():
    model: Any = nn.Sequential(on.OrthogonalLinear(4, 3, center=False), nn.Linear(3, 3), nn.Conv1d(2, 4, 5))
    on.orthogonal_weight_norm(model[2], scale=2.0, center=True, initial="weight")
    with torch.no_grad():
        free(model[0]).copy_(torch.diag(torch.tensor([4.0, 2.0, 1.0]))[:, [0, 1, 2, 2]])
        free(model[0])[:, 3] = 0
        free(model[2]).copy_(torch.cat([torch.eye(4), torch.zeros(4, 6)], 1).view(4, 2, 5))
    lines = str(on.inspect(model)).splitlines()
    columns = ["weight", "shape", "groups", "error", "cond(V)", "|V|", "norm(W)", "scale"]
    assert lines[0].split() == columns
    assert set(lines[1]) == {"-", " "}
    starts = [lines[0].index(column) for column in columns]
    cells = [[line[a:b].strip() for a, b in zip(starts, [*starts[1:], None], strict=True)] for line in lines[2:4]]
    error = [float(row.pop(3)) for row in cells]
    assert cells == [
        ["0.weight", "3 x 4", "1 group of 3 rows", "4", "2.6", "1", "none"],
        ["2.weight", "4 x 2 x 5", "1 group of 4 rows", "1.3", "1", "2", "2"],  # sqrt(1 / 0.6) once centred
    ]
    assert max(error) < 1e-6
    assert all(line == line.rstrip() for line in lines)


class Mask(nn.Module):
    def forward(self, W: torch.Tensor) -> torch.Tensor:
        return W * (torch.arange(W.shape[1]) % 2)


def test_a_parametrization_behind_the_librarys_is_named_and_not_measured():
    model: Any = nn.Sequential(on.OrthogonalLinear(8, 4), on.OrthogonalLinear(4, 3))
    alone = on.inspect(model)
    assert alone.note == ""
    nn.utils.parametrize.register_parametrization(model[0], "weight", Mask())
    assert error_of_rows(weight(model[0]).detach(), (4,)) > 0.1
    assert on.orthogonality_error(model)["0.weight"] < 1e-5
    masked = on.inspect(model)
    assert masked.layers == alone.layers
    note = "0.weight: the row is of the weight before Mask, which the layer applies to it"
    assert str(masked) == f"{alone}\n{note}"


def test_diagnostics_leave_the_model_as_it_was():
    model = on.OrthogonalLinear(8, 4, scale="learned")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    on.inspect(model)
    on.orthogonality_error(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "error of a plain model": (
        lambda: on.orthogonality_error(nn.Linear(8, 4)),
        ValueError,
        r"this Linear has no orthogonal weight\. Call orthogonalize_ first",
    ),
    "report of a plain model": (
        lambda: on.inspect(nn.Sequential(nn.Linear(8, 4))),
        ValueError,
        r"this Sequential has no orthogonal weight",
    ),
    "report on the meta device": (
        lambda: on.inspect(nn.Sequential(on.OrthogonalLinear(8, 4, device="meta"))),
        ValueError,
        r"0\.weight is on the meta device, which holds no values\. Call to_empty.*and load",
    ),
    "error on the meta device": (
        lambda: on.orthogonality_error(on.OrthogonalLinear(8, 4, device="meta")),
        ValueError,
        r"weight is on the meta device",
    ),
    "error of no module": (lambda: on.orthogonality_error("model"), TypeError, r"torch\.nn\.Module; got str"),  # type: ignore[arg-type]
    "report of no module": (lambda: on.inspect([]), TypeError, r"torch\.nn\.Module; got list"),  # type: ignore[arg-type]
}


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize(("call", "exception", "message"), WRONG.values(), ids=WRONG)
def test_wrong_inputs_are_refused(call: Callable[[], Any], exception: type[Exception], message: str):
    with pytest.raises(exception, match=message):
        call()


@pytest.mark.parametrize("shape", [(4, 9), (9, 4), (4, 2, 3, 3)], ids=["wide", "tall", "kernel"])
@pytest.mark.parametrize("named", [False, True], ids=["by position", "by name"])
def test_the_error_of_an_optimizers_weights_is_the_known_one(shape, named):
    weight = nn.Parameter(nn.init.orthogonal_(torch.empty(shape, dtype=torch.float64)))
    bias = nn.Parameter(torch.zeros(4))
    groups = [
        {"params": [("bias", bias)] if named else [bias], "manifold": False},
        {"params": [("weight", weight)] if named else [weight]},
    ]
    optimizer = on.StiefelSGD(groups, lr=0.1)
    with torch.no_grad():
        weight.mul_(1.5**0.5)
    errors = on.orthogonality_error(optimizer)
    assert errors == {"weight" if named else "1.0": pytest.approx(0.5, abs=1e-12)}


@pytest.mark.parametrize("row", [0, 3, 5])
def test_an_optimizers_group_that_is_not_finite_is_not_hidden_by_the_others(row: int):
    weight = nn.Parameter(nn.init.orthogonal_(torch.empty(6, 8)))
    optimizer = on.StiefelSGD([weight], lr=0.1, group_size=2)
    weight.grad = torch.ones_like(weight)
    weight.grad[row, 0] = torch.nan
    optimizer.step()
    assert math.isnan(on.orthogonality_error(optimizer)["0.0"])


def test_reports_are_the_same_whatever_the_default_device():
    layer = on.OrthogonalLinear(6, 5)
    optimizer = on.StiefelSGD([nn.init.orthogonal_(nn.Parameter(torch.empty(4, 6)))], lr=0.1)
    expected = on.inspect(layer), on.orthogonality_error(optimizer)
    with torch.device("meta"):
        assert (on.inspect(layer), on.orthogonality_error(optimizer)) == expected


def test_an_optimizer_without_a_manifold_says_so():
    with pytest.raises(ValueError, match="no weight on the manifold"):
        on.orthogonality_error(torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1))


def test_the_first_step_of_adam_moves_an_entry_by_the_effective_learning_rate():
    # The example of the mathematics page: |V| = 0.58, so 0.001 / 0.58 = 0.0017.
    torch.manual_seed(0)
    layer = nn.Linear(64, 32)
    model = on.orthogonalize_(nn.Sequential(layer, nn.Linear(32, 2)))
    assert on.inspect(model).layers[0].v_norm == pytest.approx(0.58, abs=0.01)
    before = layer.weight.detach().clone()
    optimizer = torch.optim.Adam(on.param_groups(model), lr=1e-3)
    nn.functional.cross_entropy(model(torch.randn(128, 64)), torch.arange(128) % 2).backward()
    optimizer.step()
    assert float((layer.weight.detach() - before).square().mean().sqrt()) == pytest.approx(0.00165, abs=0.0001)


@pytest.mark.parametrize("scale", [1.0, 1.414])
def test_a_step_of_sgd_moves_the_weight_by_the_square_of_its_scale(scale: float):
    torch.manual_seed(0)
    layer = on.orthogonal_weight_norm(nn.Linear(64, 32).double(), scale=scale)
    size, x, before = on.inspect(layer).layers[0].v_norm, torch.randn(128, 64).double(), weight(layer).detach().clone()
    with on.cached(layer):
        (G,) = torch.autograd.grad(layer(x).square().mean(), weight(layer))
    layer(x).square().mean().backward()
    torch.optim.SGD([free(layer)], lr=1e-6).step()
    # V is a multiple of W, so that W moves along the part of the gradient that is tangent to the manifold.
    tangent = G - (G @ before.T + before @ G.T) @ before / (2 * scale**2)
    expected = -1e-6 * scale**2 / size**2 * tangent
    torch.testing.assert_close(weight(layer).detach() - before, expected, rtol=1e-4, atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1.414, "row_norms"])
def test_the_first_step_of_adam_moves_the_weight_in_proportion_to_its_scale(scale: Any):
    torch.manual_seed(0)
    layer = on.orthogonal_weight_norm(nn.Linear(64, 32), scale=scale)
    size, before = on.inspect(layer).layers[0].v_norm, weight(layer).detach().clone()
    layer(torch.randn(128, 64)).square().mean().backward()
    torch.optim.Adam([free(layer)], lr=1e-3).step()
    moved = (weight(layer).detach() - before).square().mean().sqrt()
    assert float(moved) == pytest.approx(1e-3 if scale == "row_norms" else 1e-3 * scale / size, rel=0.1)
