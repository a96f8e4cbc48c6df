"""`tall="columns"`: a weight of more rows than columns is an isometry of its input; any other is as without it."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from orthogonal_layers import error_of_rows, filters, free, map_of, polar, scale, weight

LAYERS: dict[str, tuple[Any, int]] = {
    "linear": (lambda: nn.Linear(6, 20), 1),
    "convolution": (lambda: nn.Conv2d(2, 40, 3, padding=1), 1),
    "convolution of two groups": (lambda: nn.Conv1d(4, 20, 2, groups=2), 2),
    "transposed": (lambda: nn.ConvTranspose1d(3, 20, 2), 1),
    "transposed of two groups": (lambda: nn.ConvTranspose2d(4, 40, 2, groups=2), 2),
}
each_layer = pytest.mark.parametrize(("make", "groups"), LAYERS.values(), ids=LAYERS)


def blocks_of(layer: Any, count: int) -> list[Tensor]:
    """The filters of each block, without the inputs that it does not have."""
    parts = filters(layer).double().chunk(count)
    return [part[:, part.abs().sum(0) > 0] for part in parts]


@each_layer
def test_columns_are_orthonormal_and_nearest(make: Any, groups: int):
    plain = make()
    starts = blocks_of(plain, groups)
    layer = on.orthogonal_weight_norm(plain, tall="columns")
    for W, X in zip(blocks_of(layer, groups), starts, strict=True):
        assert W.shape[0] > W.shape[1]
        assert error_of_rows(W.T, (W.shape[1],)) < 2e-6
        torch.testing.assert_close(W, polar(X.T, center=False).T, rtol=0, atol=1e-5)
    assert f"{map_of(layer).sizes[0]} orthonormal columns" in repr(layer)


def test_a_layer_is_an_isometry_of_its_input():
    layer: Any = on.OrthogonalLinear(6, 20, bias=False, tall="columns")
    x = torch.randn(7, 6)
    torch.testing.assert_close(layer(x).norm(dim=1), x.norm(dim=1))
    torch.testing.assert_close(layer(x) @ layer.weight, x)


def test_torchs_orthogonal_has_the_same_columns():
    X = torch.randn(20, 6)
    peer: Any = nn.utils.parametrizations.orthogonal(nn.Linear(6, 20), orthogonal_map="householder")
    W = peer.weight.detach()
    layer = on.OrthogonalLinear(6, 20, tall="columns")
    layer.weight = W  # a fixed point
    torch.testing.assert_close(weight(layer), W, rtol=0, atol=1e-5)
    layer.weight = X
    torch.testing.assert_close(weight(layer).detach().double(), polar(X.T, center=False).T, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 6), (6, 6)], ids=["wide", "square"])
def test_what_is_not_tall_is_as_without_it(shape: tuple[int, int]):
    torch.manual_seed(1)
    layer = on.OrthogonalLinear(shape[1], shape[0], tall="columns")
    torch.manual_seed(1)
    other = on.OrthogonalLinear(shape[1], shape[0])
    assert torch.equal(weight(layer), weight(other))
    assert repr(layer) == repr(other)


def test_each_block_has_orthonormal_columns():
    layer = on.orthogonal_weight_norm(nn.Linear(4, 24), tall="columns", blocks=3, scale="learned")
    with torch.no_grad():
        scale(layer).copy_(torch.linspace(0.5, 2.0, 24))
    for block, g in zip(weight(layer).detach().split(8), scale(layer).detach().split(8), strict=True):
        unit = block / g[:, None]
        torch.testing.assert_close(unit.T @ unit, torch.eye(4), rtol=0, atol=2e-6)


def test_unequal_blocks_that_are_not_tall_stay_rows():
    layer = on.orthogonal_weight_norm(nn.Linear(16, 24), tall="columns", blocks=(16, 4, 4))
    assert error_of_rows(filters(layer), (16, 4, 4)) < 2e-6


def test_an_embedding_keeps_its_padding_row():
    table: Any = nn.Embedding(20, 6, padding_idx=3)
    on.orthogonalize_(table, on.OrthogonalConfig(tall="columns"), lambda *_: True)
    W = table.weight.detach()
    assert torch.equal(W[3], torch.zeros(6))
    torch.testing.assert_close(W.T @ W, torch.eye(6), rtol=0, atol=2e-6)


@each_layer
@pytest.mark.parametrize("scaled", [None, "row_norms"])
def test_a_layer_folds_loads_resets_and_copies(make: Any, groups: int, scaled: Any):
    plain = make()
    layer: Any = on.orthogonal_weight_norm(copy.deepcopy(plain), tall="columns", scale=scaled)
    loaded: Any = on.orthogonal_weight_norm(make(), tall="columns", scale=scaled)
    loaded.load_state_dict(plain.state_dict(), strict=True)
    assert torch.equal(weight(loaded), weight(layer))
    again: Any = on.orthogonal_weight_norm(make(), tall="columns", scale=scaled)
    again.load_state_dict(layer.state_dict())
    for other in (again, copy.deepcopy(layer), on.fold(layer)):
        assert torch.equal(weight(other), weight(layer))
    torch.testing.assert_close(free(layer).detach().norm(), plain.weight.detach().norm())
    layer.reset_parameters()
    assert not torch.allclose(weight(layer), weight(again))
    assert max(on.orthogonality_error(layer).values()) < 2e-6
    if scaled is None:
        assert all(error_of_rows(W.T, (W.shape[1],)) < 2e-6 for W in blocks_of(layer, groups))


def test_a_network_is_the_same_cached():
    layers = nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 8), nn.Tanh(), nn.Linear(8, 40), nn.Linear(40, 2)
    model = on.orthogonalize_(nn.Sequential(*layers), on.OrthogonalConfig(tall="columns", scale="learned")).double()
    x = torch.randn(5, 6, dtype=torch.float64)

    def gradients() -> list[Tensor]:
        model.zero_grad()
        model(x).square().sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected, output = gradients(), model(x).detach()
    on.register_cached(model)
    torch.testing.assert_close(model(x), output)
    for gradient, right in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(gradient, right)


@pytest.mark.parametrize("make", [make for make, _ in LAYERS.values()], ids=LAYERS)
def test_gradients_are_those_of_finite_differences(make: Any):
    layer = on.orthogonal_weight_norm(make().double(), tall="columns", scale="learned")
    V = free(layer).detach().requires_grad_()
    target = torch.randn_like(weight(layer))
    assert torch.autograd.gradcheck(lambda V: (map_of(layer)(V) * target).sum(), V, fast_mode=True)


def test_the_function_knows_both():
    V = torch.randn(3, 20, 6, dtype=torch.float64)
    W = on.functional.orthonormalize(V, tall="columns")
    torch.testing.assert_close(W, polar(V.mT, center=False).mT, rtol=0, atol=1e-12)
    wide = on.functional.orthonormalize(V.mT, tall="columns")
    torch.testing.assert_close(wide, W.mT, rtol=0, atol=1e-12)
    for options in ({"group_size": 4}, {"center": True}):
        with pytest.raises(ValueError, match="tall='columns'"):
            on.functional.orthonormalize(V, tall="columns", **options)  # type: ignore[arg-type]


def test_a_checkpoint_of_groups_loaded_into_columns_is_warned_of():
    state = on.OrthogonalLinear(6, 20).state_dict()
    with pytest.warns(UserWarning, match=r"groups of 4 x 5 rows.*orthonormal columns"):
        on.OrthogonalLinear(6, 20, tall="columns").load_state_dict(state)


def test_recurrent_gates_and_attention_convert_with_columns():
    lstm: Any = on.orthogonalize_(
        nn.LSTM(5, 8), on.OrthogonalConfig(tall="columns", input_weights=True), lambda *_: True
    )
    for gate in lstm.weight_ih_l0.detach().chunk(4):  # 8 x 5 each
        torch.testing.assert_close(gate.T @ gate, torch.eye(5), rtol=0, atol=2e-6)
    for gate in lstm.weight_hh_l0.detach().chunk(4):
        torch.testing.assert_close(gate @ gate.T, torch.eye(8), rtol=0, atol=2e-6)


@each_layer
def test_a_scale_at_the_row_norms_keeps_the_norms_of_the_rows(make: Any, groups: int):
    plain = make()
    before = filters(plain).norm(dim=1)
    layer = on.orthogonal_weight_norm(plain, tall="columns", scale="row_norms")
    torch.testing.assert_close(filters(layer).norm(dim=1), before, rtol=1e-5, atol=1e-6)
    layer.load_state_dict(on.fold(layer).state_dict())
    torch.testing.assert_close(filters(layer).norm(dim=1), before, rtol=1e-5, atol=1e-6)
