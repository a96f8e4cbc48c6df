"""The seven classes: torch's constructors, torch's results, and rows that are orthonormal."""

import dataclasses
import inspect
import io
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import orthonorm as on
from orthogonal_layers import (
    CLASSES,
    KINDS,
    Kind,
    error_of_rows,
    filters,
    free,
    map_of,
    name_of,
    polar,
    scale,
    weight,
    well_conditioned,
)
from orthonorm.parametrizations import Options

each_kind = pytest.mark.parametrize("kind", KINDS, ids=name_of)
each_class = pytest.mark.parametrize(("ours", "plain"), CLASSES, ids=[plain.__name__ for _, plain in CLASSES])


@each_class
def test_every_constructor_argument_of_torch_is_accepted(ours: Any, plain: Any):
    mine, theirs = (inspect.signature(cls).parameters.values() for cls in (ours, plain))
    expected = [(p.name, p.default, p.kind) for p in theirs]
    assert [(p.name, p.default, p.kind) for p in mine][: len(expected)] == expected
    rest = [p for p in mine if p.name not in {name for name, *_ in expected}]
    assert {p.kind for p in rest} == {inspect.Parameter.KEYWORD_ONLY}
    assert [p.name for p in rest] == [field.name for field in dataclasses.fields(Options)]


CONVOLUTION = (4, 6, 3, 2, 1, 2, 2, False, "zeros", "cpu", torch.float64)  # each argument of torch by its place
TRANSPOSED = (4, 6, 3, 2, 1, 1, 2, False, 2, "zeros", "cpu", torch.float64)
BY_PLACE = {
    nn.Linear: (9, 6, False, "cpu", torch.float64),
    nn.Conv1d: CONVOLUTION,
    nn.Conv2d: CONVOLUTION,
    nn.Conv3d: CONVOLUTION,
    nn.ConvTranspose1d: TRANSPOSED,
    nn.ConvTranspose2d: TRANSPOSED,
    nn.ConvTranspose3d: TRANSPOSED,
}


@each_class
def test_arguments_by_place_reach_torch(ours: Any, plain: Any):
    args = BY_PLACE[plain]
    layer, reference = ours(*args), plain(*args)
    assert nn.Module.extra_repr is not type(reference).extra_repr
    assert layer.extra_repr() == reference.extra_repr()
    assert layer.weight.dtype == torch.float64
    assert layer.weight.shape == reference.weight.shape
    assert layer.bias is None


@each_kind
def test_a_layer_computes_what_torchs_layer_with_its_weight_computes(kind: Kind):
    layer, plain = kind.build(scale="learned"), kind.build_plain()
    with torch.no_grad():
        scale(layer).uniform_(0.5, 2.0)
        plain.weight.copy_(layer.weight)
        if plain.bias is not None:
            plain.bias.copy_(layer.bias)
    x = torch.randn(kind.shape)
    torch.testing.assert_close(layer(x), plain(x), rtol=0, atol=0)
    assert isinstance(layer, kind.plain)


@each_kind
@pytest.mark.parametrize("center", [True, False])
def test_the_filters_are_orthonormal(kind: Kind, center: bool):
    layer = kind.build(center=center, group_size=4)
    assert error_of_rows(filters(layer), map_of(layer).sizes * getattr(layer, "groups", 1)) < 2e-6
    assert max(map_of(layer).sizes) <= 4
    if center:
        assert filters(layer).sum(1).abs().max() < 1e-5


def starts_from(layer: Any, plain: Any, kind: Kind) -> None:
    """Assert that V is what the weight of torch's layer starts as, seen through the filters of both."""
    of_v = kind.build_plain()
    with torch.no_grad():
        of_v.weight.copy_(free(layer))
    torch.testing.assert_close(filters(of_v).double(), well_conditioned(filters(plain), kind.sizes), rtol=0, atol=1e-5)


@each_kind
def test_a_start_is_torchs_start_made_orthonormal(kind: Kind):
    torch.manual_seed(1)
    layer = kind.build(scale="learned")
    torch.manual_seed(1)
    plain = kind.build_plain()
    starts_from(layer, plain, kind)
    torch.manual_seed(1)
    assert torch.equal(free(kind.build(initial="weight")), plain.weight)
    assert plain.bias is None or torch.equal(layer.bias, plain.bias)
    assert torch.equal(scale(layer), torch.ones(len(filters(layer))))


@each_kind
def test_the_rows_of_a_group_are_the_nearest_orthonormal_ones(kind: Kind):
    layer, plain = kind.build(), kind.build_plain()
    layer.weight = plain.weight.detach()
    for rows, start in zip(filters(layer).split(kind.sizes), filters(plain).split(kind.sizes), strict=True):
        # Without the columns of other convolution groups, over which a row is not to be centred.
        used = start.abs().sum(0) > 0
        torch.testing.assert_close(rows[:, used].double(), polar(start[:, used], center=False), rtol=0, atol=1e-5)


@each_kind
@pytest.mark.parametrize("scaled", [None, "learned"], ids=["no scale", "scale"])
def test_reset_parameters_draws_torchs_start_anew(kind: Kind, scaled: Any):
    layer = kind.build(scale=scaled)
    with torch.no_grad():
        free(layer).normal_()
        if scaled:
            scale(layer).fill_(3.0)
    torch.manual_seed(7)
    layer.reset_parameters()
    torch.manual_seed(7)
    plain = kind.build_plain()
    starts_from(layer, plain, kind)
    assert plain.bias is None or torch.equal(layer.bias, plain.bias)
    assert not scaled or torch.equal(scale(layer), torch.ones_like(scale(layer)))


@each_kind
def test_gradients_are_those_of_finite_differences(kind: Kind):
    layer = kind.build(scale="learned", dtype=torch.float64)
    x = torch.randn(kind.shape, dtype=torch.float64)
    target = torch.randn_like(layer(x))

    def loss() -> torch.Tensor:
        return (layer(x) * target).sum()

    for parameter in (free(layer), scale(layer)):
        direction, step = torch.randn_like(parameter), 1e-6
        (gradient,) = torch.autograd.grad(loss(), parameter)
        with torch.no_grad():
            values = []
            for sign in (1, -1):
                parameter.add_(sign * step * direction)
                values.append(float(loss()))
                parameter.sub_(sign * step * direction)
        slope = (values[0] - values[1]) / (2 * step)
        assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    ("change", "dtype", "tolerance"),
    [
        (lambda layer: layer.to(torch.float64), torch.float64, 1e-13),
        (lambda layer: layer.double(), torch.float64, 1e-13),
        (lambda layer: layer.half(), torch.float16, 3e-3),
        (lambda layer: layer.to(torch.bfloat16), torch.bfloat16, 2e-2),
    ],
    ids=["to float64", "double", "half", "bfloat16"],
)
def test_a_layer_moves_to_another_type(change: Any, dtype: torch.dtype, tolerance: float):
    layer = change(on.OrthogonalLinear(12, 6, scale="learned"))
    assert {p.dtype for p in layer.parameters()} == {dtype}
    assert layer(torch.randn(3, 12, dtype=dtype)).dtype == dtype
    assert error_of_rows(filters(layer), (6,)) < tolerance


def test_a_layer_on_the_meta_device_is_started_when_it_gets_memory():
    layer = on.OrthogonalConv2d(3, 8, 3, scale="learned", device="meta")
    assert layer(torch.empty(2, 3, 5, 5, device="meta")).shape == (2, 8, 3, 3)
    layer.to_empty(device="cpu")
    torch.manual_seed(3)
    layer.reset_parameters()
    torch.manual_seed(3)
    expected = well_conditioned(nn.Conv2d(3, 8, 3).weight.flatten(1))
    torch.testing.assert_close(free(layer).detach().double().flatten(1), expected, rtol=0, atol=1e-6)
    assert torch.equal(scale(layer), torch.ones(8))
    assert error_of_rows(filters(layer), (8,)) < 2e-6


def test_skip_init_of_torch_takes_our_class():
    layer: Any = nn.utils.skip_init(on.OrthogonalLinear, 8, 4)
    layer.weight = torch.randn(4, 8)
    assert error_of_rows(filters(layer), (4,)) < 2e-6


@pytest.mark.parametrize("scaled", [None, "row_norms", 2.0])
def test_a_state_dict_round_trip_keeps_every_bit(scaled: Any):
    first, second = (on.OrthogonalConv2d(3, 8, 3, scale=scaled) for _ in range(2))
    with torch.no_grad():
        first(torch.randn(1, 3, 5, 5))
        for parameter in first.parameters():
            parameter.uniform_(0.5, 2.0)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert torch.equal(weight(first), weight(second))
    assert list(first.state_dict()) == list(second.state_dict())


@each_kind
def test_v_and_the_scale_are_all_the_state(kind: Kind):
    layer: Any = kind.build(scale="learned")
    expected = {"parametrizations.weight.original", "parametrizations.weight.0.scale"}
    assert set(layer.state_dict()) == set(kind.build_plain().state_dict()) - {"weight"} | expected
    assert list(layer.buffers()) == []
    assert map_of(layer).scale is scale(layer)


@pytest.mark.parametrize(
    "make",
    [
        partial(on.OrthogonalLinear, 16, 24),
        partial(on.OrthogonalConv1d, 8, 24, 2),
        partial(on.OrthogonalConvTranspose1d, 8, 24, 2),
    ],
    ids=lambda make: make.func.__name__,
)
def test_groups_do_not_straddle_blocks(make: Callable[..., Any]):
    torch.manual_seed(0)
    layer = make(center=False, blocks=(16, 4, 4))
    rows = filters(layer)
    assert rows.shape == (24, 16)
    assert error_of_rows(rows, (16, 4, 4)) < 2e-6
    assert float((rows[:16] @ rows[16:20].mT).abs().max()) > 0.05


def test_blocks_that_are_not_the_rows_are_refused_at_construction():
    with pytest.raises(ValueError, match=r"blocks .*\b8 rows.*\(4, 5\)"):
        on.OrthogonalLinear(16, 8, blocks=(4, 5))


def test_a_folded_model_is_pickled_whole_and_its_state_read_as_weights(tmp_path: Any):
    model, x = (
        nn.Sequential(on.OrthogonalConv2d(3, 8, 3, scale="learned"), nn.Flatten(), nn.Linear(8, 2)),
        torch.randn(2, 3, 3, 3),
    )
    folded = on.fold(model)
    torch.save(folded, tmp_path / "model.pt")
    torch.save(folded.state_dict(), tmp_path / "state.pt")
    with pytest.raises(pickle.UnpicklingError, match="weights_only"):
        torch.load(tmp_path / "model.pt")
    whole = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(whole(x), model(x))
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2))
    plain.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert torch.equal(plain(x), model(x))
