"""`orthogonal_weight_norm` on single tensors: groups, blocks, scale, assignment, checkpoints, refusals."""

import copy
import io
import multiprocessing.reduction
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import orthonorm as on
from orthogonal_layers import error_of_rows, filters, free, map_of, matrix, polar, scale, weight, well_conditioned


def starts_from(layer: nn.Module, X: torch.Tensor, name: str = "weight") -> None:
    """Assert that V is what the matrix X starts as, within the rounding of float32."""
    expected = well_conditioned(X.flatten(1)).view(X.shape)
    torch.testing.assert_close(
        free(layer, name).detach().double(), expected, rtol=0, atol=1e-5 * float(X.detach().norm())
    )


def test_the_module_and_its_parameter_stay_the_same_objects():
    for initial in ("orthonormal", "weight"):
        layer = nn.Linear(8, 4)
        parameter, memory, start = layer.weight, layer.weight.data_ptr(), layer.weight.detach().clone()
        assert on.orthogonal_weight_norm(layer, initial=initial) is layer
        assert free(layer) is parameter
        assert isinstance(layer, nn.Linear)
        if initial == "weight":
            assert free(layer).data_ptr() == memory
            assert torch.equal(free(layer), start)
        else:
            starts_from(layer, start)


@pytest.mark.parametrize("trainable", [True, False])
def test_whether_the_weight_trains_is_kept(trainable: bool):
    layer = nn.Linear(8, 4)
    layer.weight.requires_grad_(trainable)
    on.orthogonal_weight_norm(layer)
    assert free(layer).requires_grad is trainable
    assert weight(layer).requires_grad is trainable


@pytest.mark.parametrize(("optimizer", "lr"), [(torch.optim.SGD, 0.1), (torch.optim.Adam, 0.01)], ids=["SGD", "Adam"])
def test_an_optimizer_built_before_goes_on_working(optimizer: Any, lr: float):
    layer, x, y = nn.Linear(8, 4), torch.randn(32, 8), torch.randn(32, 4)
    optim = optimizer(layer.parameters(), lr=lr)
    on.orthogonal_weight_norm(layer)
    start, losses = free(layer).detach().clone(), []
    for _ in range(20):
        optim.zero_grad()
        loss = nn.functional.mse_loss(layer(x), y)
        loss.backward()
        optim.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert not torch.equal(free(layer), start)
    assert error_of_rows(filters(layer), (4,)) < 2e-6


def test_without_scale_rows_have_norm_one():
    layer = on.orthogonal_weight_norm(nn.Linear(8, 4))
    torch.testing.assert_close(weight(layer).norm(dim=1), torch.ones(4))
    assert [name for name, _ in layer.named_parameters()] == ["bias", "parametrizations.weight.original"]


def test_a_learned_scale_starts_at_the_row_norms_and_learns():
    layer = nn.Linear(8, 4)
    norms = layer.weight.detach().norm(dim=1)
    on.orthogonal_weight_norm(layer, scale="row_norms")
    torch.testing.assert_close(scale(layer), norms, rtol=0, atol=0, check_device=True)
    torch.testing.assert_close(weight(layer).norm(dim=1), norms)
    upstream = torch.randn(4, 8)
    (weight(layer) * upstream).sum().backward()
    # W = g W_1, so dL/dg is the product of each row of G with the row of W before the scale.
    unit = weight(layer).detach() / norms[:, None]
    torch.testing.assert_close(scale(layer).grad, (unit * upstream).sum(1))


def test_a_frozen_layer_stays_frozen_with_a_learned_scale_too():
    layer = on.orthogonal_weight_norm(nn.Linear(8, 4).requires_grad_(False), scale="row_norms")
    assert [name for name, parameter in layer.named_parameters() if parameter.requires_grad] == []
    optimizer = torch.optim.SGD(layer.requires_grad_(True).parameters(), lr=0.1)
    start = scale(layer).detach().clone()
    layer(torch.randn(1, 8)).sum().backward()
    optimizer.step()
    assert not torch.equal(scale(layer), start)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_a_learned_scale_is_the_row_norm_where_squares_are_no_numbers(size: float):
    # Found by the campaign: in float32 the scale was 0 or infinite, converted or loaded, though the norm is a number.
    plain = nn.Linear(8, 4)
    norms = plain.weight.detach().double().norm(dim=1) * size
    with torch.no_grad():
        plain.weight *= size
    state = {key: value.clone() for key, value in plain.state_dict().items()}
    converted = on.orthogonal_weight_norm(plain, scale="row_norms")
    loaded = on.orthogonal_weight_norm(nn.Linear(8, 4), scale="row_norms")
    loaded.load_state_dict(state)
    for layer in (converted, loaded):
        torch.testing.assert_close(scale(layer).detach().double() / norms, torch.ones(4).double(), rtol=0, atol=1e-6)


def test_a_learned_scale_of_a_convolution_goes_to_its_own_filter():
    layer = on.orthogonal_weight_norm(nn.ConvTranspose2d(4, 6, 3, groups=2), scale="row_norms")
    with torch.no_grad():
        scale(layer).copy_(torch.arange(1.0, 7.0))
    torch.testing.assert_close(filters(layer).norm(dim=1), torch.arange(1.0, 7.0))


def test_a_fixed_scale_is_a_number_and_no_parameter():
    layer = on.orthogonal_weight_norm(nn.Linear(8, 4), scale=2.5)
    torch.testing.assert_close(weight(layer) @ weight(layer).T, 6.25 * torch.eye(4))
    assert len(list(layer.parameters())) == 2


@pytest.mark.usefixtures("unenforced")
def test_scale_1_is_a_number_not_true():
    layer = on.orthogonal_weight_norm(nn.Linear(8, 4), scale=1)
    assert len(list(layer.parameters())) == 2


@pytest.mark.parametrize(
    ("blocks", "sizes"),
    [(4, (5, 5, 5, 5)), ((4, 10, 6), (4, 5, 5, 6)), ([20], (7, 7, 6)), (None, (7, 7, 6))],
    ids=["equal", "unequal", "one", "none"],
)
def test_groups_do_not_straddle_blocks(blocks: Any, sizes: tuple[int, ...]):
    layer = on.orthogonal_weight_norm(nn.Linear(8, 20), blocks=blocks)
    assert map_of(layer).sizes == sizes
    assert error_of_rows(filters(layer), sizes) < 2e-6
    parts = zip(free(layer).split(sizes), filters(layer).split(sizes), strict=True)
    for V, W in parts:
        torch.testing.assert_close(W.double(), polar(V, center=False), rtol=0, atol=1e-5)


def test_the_gates_of_an_lstm_are_orthogonal_one_by_one():
    lstm: Any = nn.LSTM(5, 6)
    on.orthogonal_weight_norm(lstm, "weight_hh_l0", blocks=4, center=False)
    W = lstm.weight_hh_l0.detach()
    assert W.shape == (24, 6)
    assert error_of_rows(W, (6, 6, 6, 6)) < 2e-6


@pytest.mark.parametrize(
    ("module", "options", "text"),
    [
        (
            nn.Linear(64, 64),
            {"group_size": 32},
            "2 groups of 32 rows, orthonormal within a group; limit 64, not centred, scale=None",
        ),
        (
            nn.Linear(8, 8),
            {"center": False, "scale": 2.0},
            "1 group of 8 rows, orthonormal within a group; limit 8, not centred, scale=2.0",
        ),
        (
            nn.Linear(8, 8),
            {"grouping": "tail", "scale": "learned", "center": True},
            "1 group of 7 rows and 1 group of 1 row, orthonormal within a group; limit 7, centred, scale=learned",
        ),
        (
            nn.Conv2d(4, 8, 3, groups=2),
            {},
            "1 group of 4 rows in each of 2 convolution groups, orthonormal within a group; limit 18, not centred, "
            "scale=None",
        ),
        (nn.Linear(8, 24), {"tall": "columns"}, "8 orthonormal columns, scale=None"),
        (nn.Linear(8, 24), {"tall": "columns", "blocks": 2}, "8 orthonormal columns in each of 2 blocks, scale=None"),
    ],
    ids=["two groups", "uncentred", "tail", "convolution groups", "columns", "columns of blocks"],
)
def test_the_repr_says_what_results(module: nn.Module, options: dict[str, Any], text: str):
    on.orthogonal_weight_norm(module, **options)
    assert f"(0): OrthogonalWeightNorm({text})" in repr(module)


def test_an_assigned_weight_becomes_v_and_its_row_norms_the_scale():
    layer = on.orthogonal_weight_norm(nn.Linear(8, 4), scale="row_norms")
    parameter, X = free(layer), 3 * torch.randn(4, 8)
    layer.weight = X
    assert free(layer) is parameter
    starts_from(layer, X)
    torch.testing.assert_close(scale(layer), X.norm(dim=1))
    torch.testing.assert_close(weight(layer), X.norm(dim=1, keepdim=True) * polar(X, center=False).float())


class Shifted(nn.Module):
    def forward(self, W: Tensor) -> Tensor:
        return W + 1

    def right_inverse(self, W: Tensor) -> Tensor:
        return W - 1


def test_an_assignment_behind_two_parametrizations_starts_the_scale():
    layer: Any = on.OrthogonalLinear(8, 4, scale="row_norms")
    for behind in (Shifted(), Doubled()):
        parametrize.register_parametrization(layer, "weight", behind)
    rows = torch.linalg.qr(torch.randn(8, 4, dtype=torch.float64)).Q.mT.float()
    g = torch.tensor([[0.5], [1.0], [2.0], [3.0]])
    layer.weight = 2 * (g * rows + 1)
    torch.testing.assert_close(layer.parametrizations.weight[0].scale.detach().view(4, 1), g)
    torch.testing.assert_close(layer.weight.detach(), 2 * (g * rows + 1))


def test_training_leaves_an_assigned_tensor_alone():
    layer, X = on.orthogonal_weight_norm(nn.Linear(8, 4)), torch.randn(4, 8)
    before = X.clone()
    layer.weight = X
    with torch.no_grad():
        free(layer).zero_()
    assert torch.equal(X, before)


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize(
    "value",
    [torch.full((4, 8), 7.0).double(), torch.zeros(5, 8), torch.ones(4, 8).int(), torch.zeros(4, 8), None],
    ids=["another type", "another shape", "whole numbers", "lost directions", "none"],
)
@pytest.mark.filterwarnings("error")
def test_an_assignment_that_raises_has_changed_nothing(value: Any):
    layer = on.orthogonal_weight_norm(nn.Linear(8, 4), scale="row_norms")
    with torch.no_grad():
        scale(layer).fill_(3.0)
    before = {name: parameter.detach().clone() for name, parameter in layer.named_parameters()}
    with pytest.raises((TypeError, ValueError, UserWarning)):
        layer.weight = value
    for name, parameter in layer.named_parameters():
        assert torch.equal(parameter, before[name])


def test_an_assignment_that_torch_refuses_has_not_changed_a_scale_of_another_type():
    # V and the scale of different types: what torch refuses, the scale alone could have taken.
    layer: Any = on.orthogonal_weight_norm(nn.Linear(8, 4), scale="row_norms").double()
    scale(layer).data = torch.full((4,), 3.0)
    with pytest.raises(ValueError, match="dtype"):
        layer.weight = torch.randn(4, 8)
    assert torch.equal(scale(layer), torch.full((4,), 3.0))


def test_an_orthonormal_weight_is_a_fixed_point():
    layer = on.orthogonal_weight_norm(nn.Linear(8, 4, dtype=torch.float64))
    W = weight(layer).detach().clone()
    layer.weight = W
    torch.testing.assert_close(weight(layer), W, rtol=0, atol=1e-14)


@pytest.mark.parametrize("scaled", [None, "row_norms", 2.0])
def test_reset_parameters_of_a_converted_layer_is_the_classes_own(scaled: Any):
    layer: Any = on.orthogonal_weight_norm(nn.Conv2d(3, 6, 3), scale=scaled)
    parameter = free(layer)
    torch.manual_seed(5)
    layer.reset_parameters()
    torch.manual_seed(5)
    plain: Any = nn.Conv2d(3, 6, 3)
    assert free(layer) is parameter
    starts_from(layer, plain.weight)
    assert torch.equal(layer.bias, plain.bias)
    if scaled == "row_norms":
        torch.testing.assert_close(scale(layer), plain.weight.detach().flatten(1).norm(dim=1))


def test_reset_parameters_of_one_layer_leaves_the_class_alone():
    on.orthogonal_weight_norm(nn.Linear(8, 4))
    assert nn.Linear.reset_parameters.__module__ == "torch.nn.modules.linear"
    plain = nn.Linear(8, 4)
    torch.manual_seed(2)
    plain.reset_parameters()
    torch.manual_seed(2)
    assert torch.equal(plain.weight, nn.Linear(8, 4).weight)


class ThroughData(nn.Linear):
    """Initialised by what older code writes: torch counts no version of a tensor that is written through `.data`."""

    def reset_parameters(self, size: float = 1.0) -> None:
        self.weight.data.uniform_(-size, size)


@pytest.mark.parametrize("scaled", [None, "row_norms"])
def test_reset_parameters_that_writes_through_data_resets_v(scaled: Any):
    layer: Any = on.orthogonal_weight_norm(ThroughData(8, 4, bias=False), scale=scaled)
    torch.manual_seed(5)
    layer.reset_parameters(size=3.0)
    torch.manual_seed(5)
    drawn = torch.empty(4, 8).uniform_(-3.0, 3.0)
    starts_from(layer, drawn)
    if scaled:
        assert torch.equal(scale(layer), drawn.norm(dim=1))


class WritesARowThroughData(nn.Linear):
    def reset_parameters(self, row: torch.Tensor | None = None) -> None:
        if row is None:
            super().reset_parameters()
        else:
            self.weight.data[1] = row


def test_reset_parameters_that_writes_one_row_through_data_keeps_the_others():
    layer: Any = on.orthogonal_weight_norm(WritesARowThroughData(8, 4, bias=False))
    before = layer.weight.detach().clone()
    layer.reset_parameters(torch.arange(8.0))
    before[1] = torch.arange(8.0)
    starts_from(layer, before)


class GivesOtherMemory(nn.Linear):
    def reset_parameters(self) -> None:
        self.weight.data = torch.eye(4, 8)


def test_reset_parameters_that_gives_the_weight_other_memory_resets_v():
    layer: Any = on.orthogonal_weight_norm(GivesOtherMemory(8, 4, bias=False))
    with torch.no_grad():
        free(layer).normal_()
    layer.reset_parameters()
    assert torch.equal(weight(layer), torch.eye(4, 8))


class KeepsItsWeight(nn.Linear):
    def reset_parameters(self) -> None:
        nn.init.zeros_(self.bias)


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_reset_parameters_that_leaves_the_weight_leaves_v(value: float):
    layer: Any = KeepsItsWeight(8, 4)
    nn.init.normal_(layer.weight)
    on.orthogonal_weight_norm(layer)
    V = torch.randn(4, 8)
    V[0, 0] = value
    with torch.no_grad():
        free(layer).copy_(V)
    layer.reset_parameters()
    torch.testing.assert_close(free(layer).detach(), V, rtol=0, atol=0, equal_nan=True)


def test_reset_parameters_in_inference_mode_resets_v():
    layer: Any = on.orthogonal_weight_norm(nn.Linear(8, 4))
    with torch.inference_mode():
        torch.manual_seed(5)
        layer.reset_parameters()
    torch.manual_seed(5)
    starts_from(layer, nn.Linear(8, 4).weight)


def test_the_second_name_of_reset_parameters_is_attentions():
    layer: Any = on.orthogonal_weight_norm(nn.MultiheadAttention(8, 2), "in_proj_weight", blocks=3)
    torch.manual_seed(5)
    layer._reset_parameters()
    torch.manual_seed(5)
    drawn = nn.init.xavier_uniform_(torch.empty(24, 8))
    expected = well_conditioned(drawn, (8, 8, 8))
    torch.testing.assert_close(free(layer, "in_proj_weight").detach().double(), expected, rtol=0, atol=1e-5)


def test_attention_made_without_memory_starts_from_its_own_reset():
    layer: Any = nn.MultiheadAttention(8, 2, device="meta")
    on.orthogonal_weight_norm(layer, "in_proj_weight", blocks=3)
    layer.to_empty(device="cpu")
    with torch.no_grad():
        free(layer, "in_proj_weight").fill_(float("nan"))  # whatever was in the memory
    layer._reset_parameters()
    W = layer.in_proj_weight.detach()
    assert max(error_of_rows(part, (8,)) for part in W.split(8)) < 2e-6


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    def right_inverse(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


def test_another_parametrization_of_the_same_module_does_not_matter():
    layer: Any = nn.Linear(8, 4)
    plain = nn.Linear(8, 4)
    parametrize.register_parametrization(layer, "bias", Doubled())
    on.orthogonal_weight_norm(layer)
    state = {"weight": plain.weight.detach(), "parametrizations.bias.original": torch.ones(4)}
    layer.load_state_dict(state)
    starts_from(layer, plain.weight)
    torch.manual_seed(5)
    layer.reset_parameters()
    torch.manual_seed(5)
    fresh = nn.Linear(8, 4)
    starts_from(layer, fresh.weight)
    torch.testing.assert_close(layer.bias, fresh.bias)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("scaled", [None, "row_norms"])
def test_a_plain_checkpoint_loads(assign: bool, scaled: Any):
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 4))
    model: Any = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 4))
    for layer in (model[0], model[2]):
        on.orthogonal_weight_norm(layer, scale=scaled)
    state = plain.state_dict()
    keys = list(state)
    assert str(model.load_state_dict(state, strict=True, assign=assign)) == "<All keys matched successfully>"
    assert list(state) == keys
    reference: Any = plain
    for index in (0, 2):
        V = reference[index].weight.detach()
        starts_from(model[index], V)
        assert torch.equal(model[index].bias, reference[index].bias)
        assert free(model[index]).requires_grad
        if scaled:
            torch.testing.assert_close(scale(model[index]), V.flatten(1).norm(dim=1))
            assert scale(model[index]).requires_grad
    assert isinstance(free(model[0]), nn.Parameter)


def test_a_weight_beside_its_unconstrained_parameter_in_a_checkpoint_is_an_unexpected_key():
    layer: Any = on.orthogonal_weight_norm(nn.Linear(8, 4))
    with pytest.raises(RuntimeError, match=r'Unexpected key.*"weight"'):
        layer.load_state_dict(layer.state_dict() | {"weight": torch.eye(4, 8)})


def test_a_checkpoint_of_whole_numbers_loads_as_into_the_plain_layer():
    values = torch.arange(32).view(4, 8) ** 2 % 11
    plain = nn.Linear(8, 4, bias=False)
    plain.load_state_dict({"weight": values})
    layer = on.orthogonal_weight_norm(nn.Linear(8, 4, bias=False), scale="row_norms")
    layer.load_state_dict({"weight": values})
    starts_from(layer, plain.weight)
    torch.testing.assert_close(scale(layer).detach(), plain.weight.detach().norm(dim=1))


@pytest.mark.parametrize("scaled", [None, "row_norms"])
def test_a_folded_checkpoint_loads_into_the_same_function(scaled: Any):
    layer = on.orthogonal_weight_norm(nn.ConvTranspose2d(4, 6, 3, groups=2, dtype=torch.float64), scale=scaled)
    fresh = on.orthogonal_weight_norm(nn.ConvTranspose2d(4, 6, 3, groups=2, dtype=torch.float64), scale=scaled)
    fresh.load_state_dict(on.fold(layer).state_dict())
    torch.testing.assert_close(weight(fresh), weight(layer), rtol=0, atol=1e-13)


def test_a_converted_checkpoint_keeps_its_own_scale():
    layer, fresh = (on.orthogonal_weight_norm(nn.Linear(8, 4), scale="row_norms") for _ in range(2))
    with torch.no_grad():
        scale(layer).fill_(5.0)
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(scale(fresh), torch.full((4,), 5.0))
    assert torch.equal(weight(fresh), weight(layer))


def test_a_plain_checkpoint_loads_into_a_deep_copy_only():
    layer, plain = on.orthogonal_weight_norm(nn.Linear(8, 4), scale="row_norms"), nn.Linear(8, 4)
    V, clone = free(layer).detach().clone(), copy.deepcopy(layer)
    clone.load_state_dict(plain.state_dict())
    starts_from(clone, plain.weight)
    assert torch.equal(free(layer), V)


@pytest.mark.parametrize("scaled", [None, "row_norms"])
@pytest.mark.parametrize("shape", [(5, 2, 3), (4, 2), (4,), ()], ids=str)
@pytest.mark.parametrize("kind", [nn.Conv1d, nn.ConvTranspose1d])
def test_a_checkpoint_of_another_shape_gives_torchs_message(kind: Any, shape: tuple[int, ...], scaled: Any):
    layer = on.orthogonal_weight_norm(kind(4, 4, 3, groups=2, bias=False), scale=scaled)
    message = (
        r"^Error\(s\) in loading state_dict for Parametrized\w+:\n\t"
        r"size mismatch for parametrizations.weight.original: "
        r"copying a param with shape torch.Size\(.*\) from checkpoint, the shape in current model is "
        r"torch.Size\(\[4, 2, 3\]\).$"
    )
    start = None if not scaled else scale(layer).detach().clone()
    with pytest.raises(RuntimeError, match=message):
        layer.load_state_dict({"weight": torch.ones(shape)})
    assert start is None or torch.equal(scale(layer), start)


def test_a_missing_weight_gives_torchs_message():
    layer = on.orthogonal_weight_norm(nn.Linear(8, 4, bias=False))
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "parametrizations.weight.original"'):
        layer.load_state_dict({})


REFUSAL = r"^Serialization of parametrized modules is only supported through state_dict\(\)\. See:\n"


@pytest.mark.parametrize(
    "write",
    [
        pickle.dumps,
        lambda model: torch.save(model, io.BytesIO()),
        # What multiprocessing does to the arguments of a process that it spawns.
        multiprocessing.reduction.ForkingPickler.dumps,
    ],
    ids=["pickle", "torch.save", "spawn"],
)
def test_a_whole_module_is_refused_by_torch_and_a_folded_one_is_not(write: Callable[[nn.Module], Any]):
    model = nn.Sequential(on.OrthogonalLinear(8, 4))
    with pytest.raises(RuntimeError, match=REFUSAL):
        write(model)
    write(on.fold(model))


def converted(rows: torch.Tensor, message: str, **options: Any) -> nn.Module:
    layer = nn.Linear(rows.shape[1], rows.shape[0])
    with torch.no_grad():
        layer.weight.copy_(rows)
    with pytest.warns(UserWarning, match=message):
        return on.orthogonal_weight_norm(layer, center=True, **options)


ROWS = matrix(4, 8, [1.0, 2.0, 3.0, 4.0], dtype=torch.float32)
DEFICIENT = {
    "zero": (torch.zeros(4, 8), 4),
    "a zero row": (ROWS * torch.tensor([[1.0], [0.0], [1.0], [1.0]]), 1),
    "twice a row": (ROWS[[0, 1, 2, 2]], 1),
    "constant": (torch.full((4, 8), 0.5), 4),
    "a constant row": (torch.cat([ROWS[:3], torch.ones(1, 8)]), 1),
}


@pytest.mark.parametrize(("rows", "lost"), DEFICIENT.values(), ids=DEFICIENT)
def test_a_deficient_weight_is_completed_with_a_warning(rows: torch.Tensor, lost: int):
    message = rf"^weight of Linear has lost {lost} of its 4 directions \(zero or dependent rows\)"
    layers = [converted(rows, message) for _ in range(2)]
    assert error_of_rows(filters(layers[0]), (4,)) < 2e-6
    assert torch.equal(free(layers[0]), free(layers[1]))  # no random number is drawn
    # What was there is kept: W maps the row space of the weight as the nearest partial isometry does.
    centred = rows.double() - rows.double().mean(1, keepdim=True)
    U, _, Rt = torch.linalg.svd(centred, full_matrices=False)
    kept = 4 - lost
    torch.testing.assert_close(filters(layers[0]).double() @ Rt[:kept].T, U[:, :kept], rtol=0, atol=1e-5)
    assert torch.linalg.cond(free(layers[0]).double() - free(layers[0]).double().mean(1, keepdim=True)) < 10


def test_the_rows_norms_of_a_deficient_weight_are_its_scale():
    layer = converted(DEFICIENT["a zero row"][0], "lost 1 of its 4", scale="row_norms")
    assert scale(layer)[1] == 0
    assert torch.equal(weight(layer)[1], torch.zeros(8))


def test_only_the_group_that_lost_a_direction_is_completed():
    rows = torch.cat([ROWS, ROWS[[0, 0, 1, 2]]])
    layer = converted(rows, "lost 1 of its 8", group_size=4, initial="weight")
    assert torch.equal(free(layer)[:4], rows[:4])
    assert error_of_rows(filters(layer), (4, 4)) < 2e-6


@pytest.mark.parametrize(("d", "limit"), [(0, 0), (8, 8)])
def test_a_layer_without_outputs_stays_one(d: int, limit: int):
    # As torch's, which warns at its making that there is nothing to initialise.
    with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
        layer = on.OrthogonalLinear(d, 0)
    assert f"(0): OrthogonalWeightNorm(no rows, orthonormal within a group; limit {limit}," in repr(layer)
    assert layer(torch.ones(2, d)).shape == (2, 0)
    assert on.orthogonality_error(layer) == {"weight": 0.0}
    assert weight(on.fold(on.renormalize_(layer))).shape == (0, d)


def test_rows_of_two_entries_are_warned_of():
    message = r"^weight of Linear has rows of 2 entries, which centring leaves no freedom"
    with pytest.warns(UserWarning, match=message):
        layer = on.orthogonal_weight_norm(nn.Linear(2, 3), center=True)
    torch.testing.assert_close(weight(layer).abs(), torch.full((3, 2), 0.5**0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on.orthogonal_weight_norm(nn.Linear(2, 2), center=False)


def test_a_tensor_of_more_than_two_dimensions_has_its_first_for_rows():
    layer = on.orthogonal_weight_norm(nn.Bilinear(3, 4, 5))
    assert error_of_rows(weight(layer).detach().flatten(1), (5,)) < 2e-6


def norm(module: Any = None, name: Any = "weight", **options: Any) -> Callable[[], Any]:
    return lambda: on.orthogonal_weight_norm(nn.Linear(8, 8) if module is None else module, name, **options)


def without_entries(n: int, d: int) -> Callable[[], Any]:
    def call() -> nn.Module:
        layer = nn.Linear(2, 2)
        layer.weight = nn.Parameter(torch.empty(n, d))
        return on.orthogonal_weight_norm(layer)

    return call


def assign(value: Any) -> Callable[[], Any]:
    return lambda: setattr(on.OrthogonalLinear(8, 4), "weight", value)


WRONG = {
    "not a module": (norm("layer"), TypeError, r"module must be a torch\.nn\.Module; got str"),
    "no such parameter": (norm(name="kernel"), ValueError, r"'kernel' of its own; it has weight, bias\. Pass one"),
    "a slip": (norm(name="weigth"), ValueError, r"no parameter 'weigth' .*Did you mean 'weight'\?"),
    "no name": (norm(name=None), TypeError, r"name must be the name of a parameter, as 'weight'; got None"),
    "of a submodule": (
        norm(nn.Sequential(nn.Linear(4, 4)), "0.weight"),
        ValueError,
        r"'0\.weight' of its own; it has none\. Pass its submodule: .*\(module\.get_submodule\('0'\), 'weight'\)",
    ),
    "a model": (norm(nn.Sequential(nn.Linear(4, 4))), ValueError, r"it has none\. Call orthogonalize_\(model\)"),
    "a buffer": (norm(nn.BatchNorm1d(4), "running_mean"), ValueError, r"This is a buffer: make it a torch\.nn\.Param"),
    "no parameter at all": (norm(nn.ReLU()), ValueError, r"ReLU has no parameter 'weight' .*none\. Leave this"),
    "a bias": (norm(name="bias"), ValueError, r"at least 2 dimensions, rows and their entries; got the shape \(8,\)"),
    "complex": (norm(nn.Linear(8, 8, dtype=torch.complex64)), TypeError, r"complex \(torch\.complex64\).*two real"),
    "lazy": (norm(nn.LazyLinear(8)), ValueError, r"no shape yet \(a lazy module\)\. Run one batch"),
    "twice": (norm(on.OrthogonalLinear(8, 4)), ValueError, r"already, by OrthogonalWeightNorm\. Fold it first"),
    "over torch's": (
        norm(nn.utils.parametrizations.orthogonal(nn.Linear(8, 4))),
        ValueError,
        r"already, by _Orthogonal\. Remove that one first",
    ),
    "group beyond the limit": (
        norm(group_size=8, center=True),
        ValueError,
        r"at most 7 rows .* got group_size = 8 .*center=False",
    ),
    "group not whole": (norm(group_size=2.0), TypeError, r"group_size must be a whole number or None; got 2\.0"),
    "group of true": (norm(group_size=True), TypeError, r"whole number or None; got True"),
    "group of none": (norm(group_size=0), ValueError, r"at least 1, or None for the limit; got 0"),
    "unknown grouping": (norm(grouping="even"), ValueError, r"one of 'balanced', 'tail'; got 'even'"),
    "unknown method": (norm(method="svd"), ValueError, r"one of 'auto', 'eigh', 'newton'; got 'svd'"),
    "sparse table": (norm(nn.Embedding(3, 4, sparse=True)), ValueError, r"weight of Embedding: .*Set sparse=False"),
    "renormalised table": (
        norm(nn.EmbeddingBag(3, 4, max_norm=1.0)),
        ValueError,
        r"max_norm=1\.0, .*Set max_norm=None",
    ),
    "one input": (
        norm(nn.Linear(1, 4), center=True),
        ValueError,
        r"weight of Linear: centring needs rows of at least 2 entries",
    ),
    "no input": (without_entries(4, 0), ValueError, r"weight of Linear: rows need at least 1 entry; got d = 0\. Check"),
    "scale zero": (norm(scale=0), ValueError, r"scale must be .*positive number; got 0\. Write scale=None"),
    "scale true": (norm(scale=True), TypeError, r"scale must be .*; got True\. Write scale='learned'"),
    "scale false": (norm(scale=False), TypeError, r"scale must be .*; got False\. Write scale=None"),
    "scale a list": (norm(scale=[1.0]), TypeError, r"scale must be .*; got \[1\.0\]"),
    "initial unknown": (norm(initial="zero"), ValueError, r"initial must be 'orthonormal' .* 'weight' .*; got 'zero'"),
    "tall unknown": (norm(tall="rows"), ValueError, r"tall must be 'groups' .* 'columns' .*; got 'rows'"),
    "columns in groups": (
        norm(tall="columns", group_size=4),
        ValueError,
        r"None and center False with tall='columns'.*; got group_size=4 .*Pass gr",
    ),
    "centred columns": (
        norm(tall="columns", center=True),
        ValueError,
        r"center False with tall='columns'.*center=True\.",
    ),
    "columns of unequal blocks": (
        norm(nn.Linear(4, 16), tall="columns", blocks=(8, 4, 4)),
        ValueError,
        r"weight of Linear: blocks must be equal with tall='columns'.*got \(8, 4, 4\)",
    ),
    "scale negative": (norm(scale=-1.0), ValueError, r"positive number; got -1\.0"),
    "scale infinite": (norm(scale=float("inf")), ValueError, r"positive number; got inf"),
    "scale NaN": (norm(scale=float("nan")), ValueError, r"positive number; got nan"),
    "center a number": (norm(center=1), TypeError, r"center must be True or False; got 1"),
    "scale slip": (norm(scale="rownorms"), ValueError, r"got 'rownorms'\. Write scale='row_norms'"),
    "scale text": (norm(scale="learn"), ValueError, r"positive number; got 'learn'"),
    "blocks do not divide": (norm(blocks=3), ValueError, r"must divide the 8 rows; got 3\. Give the sizes"),
    "blocks of zero": (norm(blocks=0), ValueError, r"at least 1, or None for no blocks; got 0"),
    "blocks do not sum": (norm(blocks=(3, 4)), ValueError, r"positive and sum to the 8 rows; got \(3, 4\)"),
    "blocks empty": (norm(blocks=()), ValueError, r"positive and sum to the rows of the weight; got \(\)"),
    "blocks negative": (norm(blocks=(9, -1)), ValueError, r"positive and sum to the rows .*; got \(9, -1\)"),
    "blocks text": (norm(blocks="4"), TypeError, r"number of equal blocks, or the sizes of the blocks; got '4'"),
    "blocks real": (norm(blocks=2.0), TypeError, r"number of equal blocks, or the sizes of the blocks; got 2\.0"),
    "blocks of a grouped convolution": (
        norm(nn.Conv1d(4, 4, 3, groups=2), blocks=2),
        ValueError,
        r"blocks cannot be combined with a convolution of 2 groups",
    ),
    "assigned of another shape": (assign(torch.ones(5, 8)), ValueError, r"the shape \(4, 8\); got .* \(5, 8\) for it"),
    "assigned of another type": (assign(torch.randn(4, 8).double()), ValueError, r"dtype torch\.float64"),
    "assigned whole numbers": (
        assign(torch.ones(4, 8).int()),
        TypeError,
        r"^weight of OrthogonalLinear must be a floating tensor; got torch\.int32\. Convert it with \.float\(\)",
    ),
    "assigned complex numbers": (assign(torch.ones(4, 8) * 1j), TypeError, r"complex \(torch\.complex64\).*two real"),
    "assigned no tensor": (assign([1.0]), TypeError, r"must be a tensor of the shape \(4, 8\); got list\."),
}


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize(("call", "exception", "message"), WRONG.values(), ids=WRONG)
def test_wrong_inputs_are_refused(call: Callable[[], Any], exception: type[Exception], message: str):
    with pytest.raises(exception, match=message):
        call()


def test_a_weight_that_is_not_finite_is_converted_with_a_warning_that_names_it():
    layer = nn.Linear(8, 4)
    with torch.no_grad():
        layer.weight[0, 0] = float("nan")
    with pytest.warns(UserWarning, match=r"weight of Linear .*not finite"):
        on.orthogonal_weight_norm(layer, group_size=2)
    assert layer.weight[:2].isnan().all()
    assert layer.weight[2:].isfinite().all()


def test_parameters_that_are_none_are_not_offered():
    with pytest.raises(ValueError, match=r"no parameter 'bias' of its own; it has weight\."):
        on.orthogonal_weight_norm(nn.Linear(8, 4, bias=False), "bias")


def test_a_reset_changes_what_no_other_module_reads():
    layer, other = on.OrthogonalLinear(6, 4), on.OrthogonalLinear(6, 4)

    class Looking(nn.Linear):
        def reset_parameters(self) -> None:
            super().reset_parameters()
            if self.bias is not None and hasattr(self, "parametrizations"):
                with torch.no_grad():
                    free(other).copy_(free(layer))
                read.append(other.weight.detach().clone())

    read: list[torch.Tensor] = []
    looking: Any = on.orthogonal_weight_norm(Looking(6, 4))
    before = looking.weight.detach().clone()
    with torch.nn.utils.parametrize.cached():
        looking.reset_parameters()
    torch.testing.assert_close(read[0], layer.weight)
    assert not torch.equal(looking.weight, before)
    assert error_of_rows(filters(looking), (4,)) < 1e-5
