"""What V and the scale start as: at conversion, assignment, reset, and loading of a plain checkpoint."""

import copy
import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from orthogonal_layers import error_of_rows, filters, free, map_of, matrix, polar, scale, weight, well_conditioned


def convert(X: Tensor, **options: Any) -> Any:
    layer = nn.Linear(X.shape[1], X.shape[0], bias=False, dtype=X.dtype)
    with torch.no_grad():
        layer.weight.copy_(X)
    return on.orthogonal_weight_norm(layer, **options)


def assign(X: Tensor, **options: Any) -> Any:
    layer = convert(torch.randn_like(X), **options)
    layer.weight = X
    return layer


def load(X: Tensor, **options: Any) -> Any:
    layer = convert(torch.randn_like(X), **options)
    layer.load_state_dict({"weight": X})
    return layer


def load_by_assigning(X: Tensor, **options: Any) -> Any:
    layer = convert(torch.randn_like(X), **options)
    layer.load_state_dict({"weight": X}, assign=True)
    return layer


class Reset(nn.Linear):
    given: Tensor

    def reset_parameters(self) -> None:
        if hasattr(self, "given"):
            with torch.no_grad():
                self.weight.copy_(self.given)


def reset(X: Tensor, **options: Any) -> Any:
    layer: Any = Reset(X.shape[1], X.shape[0], bias=False, dtype=X.dtype)
    nn.init.normal_(layer.weight)
    on.orthogonal_weight_norm(layer, **options)
    layer.given = X
    layer.reset_parameters()
    return layer


WAYS = [convert, assign, load, load_by_assigning, reset]
each_way = pytest.mark.parametrize("start", WAYS, ids=lambda way: way.__name__)
ILL = matrix(6, 6, [1e-3, 1e-2, 0.1, 1.0, 2.0, 3.0])


@each_way
@pytest.mark.parametrize(("X", "sizes", "center"), [
    pytest.param(ILL, (6,), False, id="square"),
    pytest.param(matrix(4, 8, [0.1, 1, 2, 3]), (4,), True, id="centred"),
    pytest.param(torch.randn(7, 3, dtype=torch.float64), (3, 2, 2), False, id="three groups"),
])  # fmt: skip
def test_case_38_v_starts_as_a_multiple_of_the_orthonormal_matrix(start: Any, X: Tensor, sizes: Any, center: bool):
    layer = start(X, center=center)
    V, W = free(layer).detach(), weight(layer).detach()
    torch.testing.assert_close(V, well_conditioned(X, sizes, center=center), rtol=0, atol=1e-9)
    torch.testing.assert_close(V.norm(), X.norm())
    for part, rows, nearest in zip(V.split(sizes), W.split(sizes), X.split(sizes), strict=True):
        assert float(torch.linalg.cond(part)) == pytest.approx(1, abs=1e-9)
        torch.testing.assert_close(rows, polar(nearest, center=center), rtol=0, atol=1e-9)


@each_way
def test_the_weight_itself_is_kept_where_it_is_asked_for(start: Any):
    layer = start(ILL, initial="weight")
    assert torch.equal(free(layer), ILL)
    torch.testing.assert_close(weight(layer).detach(), polar(ILL, center=False), rtol=0, atol=1e-9)


@each_way
@pytest.mark.parametrize("initial", ["orthonormal", "weight"])
def test_a_learned_scale_starts_at_one_or_at_the_row_norms(start: Any, initial: Any):
    X = torch.randn(4, 8) * torch.tensor([[0.5], [1.0], [2.0], [4.0]])
    assert torch.equal(scale(start(X, scale="learned", initial=initial)), torch.ones(4))
    torch.testing.assert_close(scale(start(X, scale="row_norms", initial=initial)).detach(), X.norm(dim=1))


@each_way
@pytest.mark.parametrize("trains", [True, False])
def test_the_parameter_and_whether_it_trains_are_kept(start: Any, trains: bool):
    layer = start(torch.randn(4, 8))
    parameter: Any = free(layer).requires_grad_(trains)
    layer.weight = torch.randn(4, 8)
    layer.load_state_dict({"weight": torch.randn(4, 8)})
    assert free(layer) is parameter
    assert parameter.requires_grad is trains


@each_way
def test_a_zero_weight_starts_as_fixed_orthonormal_rows_with_a_warning(start: Any):
    with pytest.warns(UserWarning, match="has lost 4 of its 4 directions"):
        layer = start(torch.zeros(4, 8))
    V = free(layer).detach()
    torch.testing.assert_close(V @ V.T, torch.eye(4), rtol=0, atol=1e-6)  # c = 1
    assert torch.equal(V, weight(layer)) or error_of_rows(filters(layer), (4,)) < 2e-6


@each_way
def test_lost_directions_are_completed_and_the_norm_kept(start: Any):
    X = matrix(4, 8, [0.0, 1.0, 2.0, 3.0])
    with pytest.warns(UserWarning, match="has lost 1 of its 4 directions"):
        layer = start(X)
    assert error_of_rows(filters(layer), (4,)) < 1e-12
    torch.testing.assert_close(free(layer).detach().norm(), X.norm())
    U, _, Rt = torch.linalg.svd(X, full_matrices=False)
    torch.testing.assert_close(filters(layer) @ Rt[:3].T, U[:, :3], rtol=0, atol=1e-9)


@each_way
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_weight_that_is_not_finite_is_kept_with_a_warning(start: Any, bad: float):
    X = torch.randn(4, 8)
    X[0, 0] = bad
    with pytest.warns(UserWarning, match="entries that are not finite"):
        layer = start(X, group_size=2)
    torch.testing.assert_close(free(layer).detach(), X, rtol=0, atol=0, equal_nan=True)
    assert weight(layer)[:2].isnan().all()
    assert weight(layer)[2:].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("end", ["small", "large"])
def test_v_stays_a_number_at_the_ends_of_a_dtype(dtype: torch.dtype, end: str):
    info = torch.finfo(dtype)
    X = torch.sign(matrix(4, 8, [1, 1, 1, 1])) * torch.tensor([[1, 1], [1, -1], [-1, 1], [-1, -1]]).repeat(1, 4)
    X = (X + torch.eye(4, 8).double() / 2).to(dtype) * (info.max / 4 if end == "large" else info.tiny)
    layer = convert(X)
    assert free(layer).isfinite().all()
    rows = weight(layer).detach().double()
    torch.testing.assert_close(rows, polar(X, center=False), rtol=0, atol=8 * info.eps)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once(dtype: torch.dtype):
    X = torch.randn(16, 32).to(dtype)
    V, exact = free(convert(X)).detach().double(), well_conditioned(X)
    assert float((V - exact).abs().max()) <= 0.51 * torch.finfo(dtype).eps * float(exact.abs().max())


def test_every_convolution_group_has_the_number_of_the_whole_kernel():
    plain = nn.Conv2d(4, 6, 3, groups=2, dtype=torch.float64)
    X = plain.weight.detach().clone()
    V = free(on.orthogonal_weight_norm(plain)).detach()
    torch.testing.assert_close(V.flatten(1), well_conditioned(X.flatten(1), (3, 3)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(
    "convert", [on.orthogonal_weight_norm, lambda table: on.orthogonalize_(table, None, lambda *_: True)]
)
def test_a_padding_row_stays_what_it_is(convert: Any, kind: Any):
    table = kind(5, 8, padding_idx=1)
    with torch.no_grad():
        table.weight[1] = 7.0
    convert(table)
    assert torch.equal(free(table)[1], torch.full((8,), 7.0))
    assert torch.equal(table.weight[1], torch.full((8,), 7.0))
    table(torch.tensor([[0, 1, 2]])).sum().backward()
    grad: Any = free(table).grad
    assert torch.equal(grad[1], torch.zeros(8))


def test_the_memory_format_of_a_kernel_is_kept():
    layer = nn.Conv2d(8, 16, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    on.orthogonal_weight_norm(layer)
    assert free(layer).is_contiguous(memory_format=torch.channels_last)


def test_nothing_is_computed_on_the_meta_device(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(on.OrthogonalWeightNorm, "initial_V", refuse)
    layer = on.OrthogonalLinear(8, 4, device="meta")
    layer.weight = torch.empty(4, 8, device="meta")
    assert free(layer).is_meta


def model(config: on.OrthogonalConfig | None = None) -> Any:
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 8), nn.Linear(8, 2)
    return on.orthogonalize_(nn.Sequential(*layers), config)


@pytest.mark.parametrize("scaled", ["learned", "row_norms", None])
def test_a_converted_checkpoint_is_loaded_as_it_is(scaled: Any):
    first, second = (model(on.OrthogonalConfig(scale=scaled)) for _ in range(2))
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.uniform_(0.5, 2.0)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    for (name, value), other in zip(first.state_dict().items(), second.state_dict().values(), strict=True):
        assert torch.equal(value, other), name


@pytest.mark.parametrize("config", [None, on.OLMConfig(group_size=4), on.OrthogonalConfig(scale="row_norms")])
def test_a_plain_checkpoint_loaded_and_folded_back_is_the_nearest_weight(config: Any):
    plain: Any = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 8), nn.Linear(8, 2))
    converted = model(config)
    converted.load_state_dict(plain.state_dict(), strict=True)
    fresh: Any = on.orthogonalize_(copy.deepcopy(plain), config)
    for i in (0, 3):
        name = f"{i}.weight"
        assert torch.equal(on.fold(converted).get_parameter(name), on.fold(fresh).get_parameter(name))
        rows = converted[i].weight.detach().flatten(1)
        X = plain[i].weight.detach().flatten(1)
        g = X.norm(dim=1, keepdim=True) if converted[i].parametrizations.weight[0].options.scale else 1.0
        expected = torch.cat(
            [polar(p, center=map_of(converted[i]).center) for p in X.split(map_of(converted[i]).sizes)]
        )
        torch.testing.assert_close(rows.double(), expected * g, rtol=0, atol=2e-6)


def test_training_that_is_resumed_goes_on_bit_for_bit():
    x, first = torch.randn(16, 3, 4, 4), model(on.OrthogonalConfig(scale="learned"))

    def steps(net: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    make: Callable[[nn.Module], torch.optim.Optimizer] = lambda net: torch.optim.Adam(net.parameters(), lr=1e-2)  # noqa: E731
    optimizer = make(first)
    steps(first, optimizer)
    saved = copy.deepcopy((first.state_dict(), optimizer.state_dict()))
    expected = steps(first, optimizer)
    second = model(on.OrthogonalConfig(scale="learned"))
    other = make(second)
    second.load_state_dict(saved[0])
    other.load_state_dict(saved[1])
    assert steps(second, other) == expected


def test_a_table_of_nothing_but_its_padding_row_stays_what_it_is():
    table = on.orthogonal_weight_norm(nn.Embedding(1, 8, padding_idx=0))
    assert torch.equal(weight(table), torch.zeros(1, 8))
    assert on.inspect(table).layers[0].v_norm == 0
