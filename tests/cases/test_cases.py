"""One test a row of the reports that users of orthogonal weights filed, by the number of the row."""

import copy
import multiprocessing.reduction
import pickle
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import orthonorm as on
from orthogonal_layers import error_of_rows, filters, free, map_of, matrix, polar, scale, weight, well_conditioned

HADAMARD = torch.tensor([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
EQUAL_EIGENVALUES = {
    "orthogonal": nn.init.orthogonal_(torch.empty(4, 8), generator=torch.Generator().manual_seed(0)),
    "identity": torch.eye(4, 8),
    "Hadamard": torch.cat([HADAMARD, -HADAMARD], 1),  # of zero mean, so centring leaves the eigenvalues equal
    "pairs": matrix(4, 8, [2.0, 2.0, 1.0, 1.0]),
}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["eigh", "newton"])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("start", EQUAL_EIGENVALUES.values(), ids=EQUAL_EIGENVALUES)
def test_case_01_equal_eigenvalues_have_an_exact_finite_gradient(start: Tensor, center: bool, method: str):
    layer = nn.Linear(8, 4, dtype=torch.float64)
    with torch.no_grad():
        # With centring, a mean for it to take off.
        layer.weight.copy_(start + 0.3 if center else start)
    on.orthogonal_weight_norm(layer, center=center, method=method)
    x = torch.randn(5, 8, dtype=torch.float64)

    def output(V: Tensor) -> Tensor:
        return functional_call(layer, {"parametrizations.weight.original": V}, (x,)).tanh()

    output(free(layer)).square().sum().backward()
    gradient = free(layer).grad
    assert gradient is not None
    assert torch.isfinite(gradient).all()
    V = free(layer).detach().requires_grad_()
    torch.autograd.gradcheck(output, V)
    torch.autograd.gradgradcheck(output, V)


def test_case_02_zero_constant_and_duplicate_rows_are_completed_not_nan():
    for fill in (torch.zeros(8), torch.ones(8), None):
        layer = nn.Linear(8, 4)
        with torch.no_grad():
            layer.weight[0] = layer.weight[1] if fill is None else fill
        with pytest.warns(UserWarning, match="has lost 1 of its 4 directions"):
            on.orthogonal_weight_norm(layer, center=True)
        assert error_of_rows(filters(layer), (4,)) < 2e-6
        with torch.no_grad():  # and where a direction is lost while it trains
            free(layer)[0] = free(layer)[1] if fill is None else fill
        layer(torch.randn(5, 8)).square().sum().backward()
        gradient = free(layer).grad
        assert gradient is not None
        assert torch.isfinite(gradient).all()
        assert torch.isfinite(weight(layer)).all()
        assert on.orthogonality_error(layer)["weight"] > 0.4


def test_case_02_square_and_narrow_layers_get_legal_groups():
    square = on.OrthogonalLinear(16, 16, center=True)
    assert map_of(square).sizes == (8, 8)
    assert error_of_rows(filters(square), (8, 8)) < 2e-6
    grouped = on.OrthogonalConv2d(4, 64, 3, groups=4)  # 16 rows per group in 9 dimensions
    assert error_of_rows(filters(grouped), (8,) * 8) < 2e-6
    for layer in (square, grouped):
        size = map_of(layer).limit + 1
        with pytest.raises(ValueError, match=rf"\b{size - 1} rows .*group_size = {size}\b"):
            on.orthogonal_weight_norm(on.fold(layer), group_size=size, center=map_of(layer).center)


@pytest.mark.parametrize("method", ["eigh", "newton"])
@pytest.mark.parametrize("factor", [1e-4, 1e-6, 1e6])
def test_case_03_a_shrunken_v_gives_the_same_weight(factor: float, method: str):
    layer = on.OrthogonalConv2d(16, 32, 3, method=method)
    W = weight(layer).detach()
    with torch.no_grad():
        free(layer).mul_(factor)
    torch.testing.assert_close(weight(layer), W, rtol=0, atol=1e-6)
    assert error_of_rows(filters(layer), (32,)) < 2e-6


@pytest.mark.parametrize("method", ["eigh", "newton"])
def test_case_04_a_square_gaussian_meets_the_stated_accuracy(method: str):
    for dtype, bound in ((torch.float32, 5e-5), (torch.float64, 1e-11)):
        layer = on.OrthogonalLinear(64, 64, center=False, method=method, dtype=dtype)
        layer.weight = torch.randn(64, 64, dtype=dtype)
        assert error_of_rows(filters(layer), (64,)) < bound


@pytest.mark.parametrize("method", ["eigh", "newton"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_case_05_a_half_precision_layer_is_exact_to_its_type(dtype: torch.dtype, method: str):
    layer = on.OrthogonalLinear(128, 64, method=method).to(dtype)
    exact = polar(free(layer), center=False)
    relative = ((weight(layer).double() - exact).abs() / exact.abs().clamp_min(1e-3)).max()
    assert relative < 1.01 * torch.finfo(dtype).eps  # rounded once
    loss = layer(torch.randn(4, 128, dtype=dtype)).float().square().sum()
    loss.backward()
    gradient = free(layer).grad
    assert gradient is not None
    assert gradient.dtype == dtype
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("kind", [nn.Conv1d, nn.Conv2d, nn.Conv3d])
def test_case_06_the_rows_of_a_convolution_are_its_flattened_filters(kind: Any):
    layer = on.orthogonal_weight_norm(kind(3, 8, 3))
    assert error_of_rows(weight(layer).detach().flatten(1), (8,)) < 2e-6
    assert error_of_rows(filters(layer), (8,)) < 2e-6


@pytest.mark.parametrize("kind", [nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d])
def test_case_07_the_rows_of_a_transposed_convolution_are_its_output_filters(kind: Any):
    layer = on.orthogonal_weight_norm(kind(6, 4, 3, groups=2))  # 2 filters a group on 3 channels
    assert error_of_rows(filters(layer), (2, 2)) < 2e-6
    wide = on.orthogonal_weight_norm(kind(4, 10, 3))
    assert error_of_rows(filters(wide), (10,)) < 2e-6


def test_case_08_groups_stay_inside_a_convolutions_own_groups():
    layer = on.orthogonal_weight_norm(nn.Conv2d(4, 6, 3, groups=2))
    depthwise = on.orthogonal_weight_norm(nn.Conv2d(4, 4, 3, groups=4))
    for module, count in ((layer, 2), (depthwise, 4)):
        rows = len(filters(module)) // count
        before = filters(module).split(rows)
        with torch.no_grad():
            free(module)[:rows].normal_()
        after = filters(module).split(rows)
        assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [False] + [True] * (count - 1)
        assert error_of_rows(filters(module), (rows,) * count) < 2e-6


@pytest.mark.parametrize("scaled", [None, "row_norms"])
def test_case_10_a_pretrained_weight_is_not_thrown_away(scaled: Any):
    layer = nn.Linear(16, 8)
    pretrained, parameter = layer.weight.detach().clone(), layer.weight
    parameter.requires_grad_(False)
    on.orthogonal_weight_norm(layer, scale=scaled)
    expected = polar(pretrained, center=False)
    if scaled:
        expected = expected * pretrained.double().norm(dim=1, keepdim=True)
    torch.testing.assert_close(weight(layer).detach().double(), expected, rtol=0, atol=1e-6)
    assert free(layer) is parameter
    assert not parameter.requires_grad


def test_case_11_a_plain_checkpoint_loads_and_a_folded_model_saves_one():
    def build() -> nn.Sequential:
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(32, 8), nn.Linear(8, 2))

    plain = build()
    model = on.orthogonalize_(build(), on.OrthogonalConfig(scale="row_norms"))
    assert model.load_state_dict(plain.state_dict(), strict=True) == ([], [])
    assert sorted(on.fold(model).state_dict()) == sorted(plain.state_dict())
    plain.load_state_dict(on.fold(model).state_dict(), strict=True)
    x = torch.randn(2, 3, 4, 4)
    torch.testing.assert_close(plain.eval()(x), model.eval()(x), rtol=0, atol=0)


def test_case_13_the_weight_is_always_a_function_of_v_as_it_is_now():
    layer, other = on.OrthogonalLinear(8, 4).eval(), on.OrthogonalLinear(8, 4)
    x = torch.randn(3, 8)
    with torch.no_grad():
        layer(x)
        layer.load_state_dict(other.state_dict())
        assert torch.equal(layer(x), other(x))
        free(layer)[0] *= -1
        assert not torch.equal(layer(x), other(x))
        torch.testing.assert_close(weight(layer).double(), polar(free(layer), center=False), rtol=0, atol=1e-6)
        free(layer).data = free(other).data.clone()
        assert torch.equal(layer(x), other(x))


@pytest.mark.compiled
def test_case_13_an_exported_program_computes_the_weight_from_v():
    layer, other, x = on.OrthogonalLinear(8, 4).eval(), on.OrthogonalLinear(8, 4), torch.randn(3, 8)
    with torch.no_grad():
        module = torch.export.export(layer, (x,)).module()
        before = layer(x)
        torch.testing.assert_close(module(x), before)
        module.load_state_dict(other.state_dict())
        torch.testing.assert_close(module(x), other(x))
        assert not torch.allclose(module(x), before)


def test_case_14_deep_copies_and_folded_models_work():
    layer: Any = on.OrthogonalConv2d(3, 8, 3, scale="learned").double().eval()
    calls: list[str] = []
    layer.register_forward_hook(lambda *_: calls.append("called"))
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    outputs = layer(x).detach()
    clone = copy.deepcopy(layer)
    with torch.no_grad():
        free(clone).normal_()
    assert torch.equal(layer(x), outputs)
    assert not torch.equal(clone(x), outputs)
    plain: Any = on.fold_(on.fold_(on.fold(layer)))
    calls.clear()
    assert torch.equal(plain(x), outputs)
    assert calls == ["called"]
    assert (type(plain), plain.weight.dtype, plain.training) == (nn.Conv2d, torch.float64, False)
    assert torch.equal(plain.bias, layer.bias)
    assert torch.equal(layer(x), outputs)


def test_case_15_decay_on_v_changes_no_weight_and_is_switched_off():
    layer = on.OrthogonalLinear(8, 4)
    W, V = weight(layer).detach(), free(layer).detach().clone()
    free(layer).grad = torch.zeros_like(V)
    torch.optim.SGD([free(layer)], lr=1.0, weight_decay=0.75).step()
    torch.testing.assert_close(free(layer), V / 4)
    torch.testing.assert_close(weight(layer), W, rtol=0, atol=1e-6)
    shrunken = free(layer).detach().clone()
    torch.optim.SGD(on.param_groups(layer, weight_decay=0.5), lr=1.0).step()
    assert torch.equal(free(layer), shrunken)


def test_case_16_vmap_over_models_and_grad_are_right():
    layer, x = on.OrthogonalLinear(8, 4, scale="learned", dtype=torch.float64), torch.randn(5, 8).double()
    first = {name: p.detach() for name, p in layer.named_parameters()}
    second = {name: torch.randn_like(p) for name, p in first.items()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return functional_call(layer, parameters, (x,)).square().sum()

    stacked = {name: torch.stack([first[name], second[name]]) for name in first}
    losses = vmap(loss, (0, None))(stacked, x)
    gradients = vmap(grad(loss), (0, None))(stacked, x)
    per_sample = vmap(grad(loss), (None, 0))(first, x)
    for index, parameters in enumerate((first, second)):
        leaves = {name: p.clone().requires_grad_() for name, p in parameters.items()}
        expected = loss(leaves, x)
        torch.testing.assert_close(losses[index], expected.detach())
        alone = torch.autograd.grad(expected, list(leaves.values()))
        for (name, gradient), right in zip(gradients.items(), alone, strict=True):
            torch.testing.assert_close(gradient[index], right, msg=f"{name} of model {index}")
    for name, gradient in grad(loss)(first, x).items():
        torch.testing.assert_close(gradient, gradients[name][0])
        torch.testing.assert_close(per_sample[name].sum(0), gradient)


def test_case_16_a_gradient_penalty_differentiates_twice():
    layer, x = on.OrthogonalLinear(8, 4, dtype=torch.float64), torch.randn(5, 8).double()

    def penalty() -> Tensor:
        (g,) = torch.autograd.grad(layer(x).tanh().sum(), free(layer), create_graph=True)
        return g.square().sum()

    (gradient,) = torch.autograd.grad(penalty(), free(layer))
    direction, step, values = torch.randn_like(gradient), 1e-5, []
    with torch.no_grad():
        for sign in (1, -2):
            free(layer).add_(sign * step * direction)
            with torch.enable_grad():
                values.append(penalty().item())
    slope = (values[0] - values[1]) / (2 * step)
    assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-6)


@pytest.mark.compiled
def test_case_16_a_model_compiles_where_every_size_is_a_symbol():
    torch.compiler.reset()
    model = nn.Sequential(on.OrthogonalLinear(6, 5), on.OrthogonalLinear(5, 4))
    compiled = torch.compile(model, fullgraph=True, backend="eager", dynamic=True)
    for batch in (5, 3):
        x = torch.randn(batch, 6)
        torch.testing.assert_close(compiled(x), model(x))


@pytest.mark.compiled
@pytest.mark.parametrize("method", [pytest.param("eigh", marks=pytest.mark.nightly), "newton"])
def test_case_16_a_model_compiles_without_a_graph_break(method: str):
    model: Any = nn.Sequential(
        on.OrthogonalConv2d(3, 8, 3, scale="learned", method=method),
        nn.ReLU(),
        on.OrthogonalConvTranspose2d(8, 4, 3, groups=2, method=method),
        nn.Flatten(),
        on.OrthogonalLinear(100, 6, group_size=4, method=method),
    ).double()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 3, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(compiled(x), model(x), rtol=1e-12, atol=1e-12)
    gradients = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
    expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
    for gradient, right in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, right, rtol=1e-10, atol=1e-12)


def test_case_21_a_weight_is_set_by_assignment_and_reset():
    for layer in (on.OrthogonalLinear(8, 4), on.orthogonal_weight_norm(nn.Linear(8, 4))):
        X = nn.init.xavier_uniform_(torch.empty(4, 8))
        layer.weight = X
        torch.testing.assert_close(weight(layer).double(), polar(X, center=False), rtol=0, atol=1e-6)
        torch.testing.assert_close(free(layer).detach().double(), well_conditioned(X), rtol=0, atol=1e-5)
        torch.manual_seed(1)
        layer.reset_parameters()  # type: ignore[operator]
        torch.manual_seed(1)
        expected = well_conditioned(nn.Linear(8, 4).weight)
        torch.testing.assert_close(free(layer).detach().double(), expected, rtol=0, atol=1e-5)


def test_case_21_writing_into_the_weight_is_lost_as_with_any_parametrization_of_torch():
    layers = [on.OrthogonalLinear(8, 4), nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))]
    for layer in layers:
        W = weight(layer).detach().clone()
        with torch.no_grad():
            nn.init.xavier_uniform_(weight(layer))
            weight(layer).zero_()
        assert torch.equal(weight(layer), W)


def test_case_22_a_wrapped_module_is_not_pickled_and_the_cures_work():
    def build() -> nn.Module:
        return on.orthogonalize_(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2)))

    model, x = build(), torch.randn(3, 8)
    for write in (pickle.dumps, multiprocessing.reduction.ForkingPickler.dumps):
        with pytest.raises(RuntimeError, match=r"state_dict"):
            write(model)
    worker = build()  # built in the worker, the state sent
    worker.load_state_dict(pickle.loads(pickle.dumps(model.state_dict())))
    assert torch.equal(worker(x), model(x))
    folded = pickle.loads(pickle.dumps(on.fold(model)))
    assert torch.equal(folded(x), model(x))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("method", ["eigh", "newton"])
def test_case_23_one_nan_stays_in_its_group(bad: float, method: str):
    layer = on.OrthogonalLinear(9, 12, group_size=4, method=method)
    before = weight(layer).detach()
    with torch.no_grad():
        free(layer)[5, 2] = bad
    W = weight(layer)
    assert torch.isnan(W[4:8]).all()
    torch.testing.assert_close(W[[0, 1, 2, 3, 8, 9, 10, 11]], before[[0, 1, 2, 3, 8, 9, 10, 11]], rtol=0, atol=1e-5)
    (gradient,) = torch.autograd.grad(W[[0, 8]].sum(), free(layer))
    assert torch.isfinite(gradient[[0, 1, 2, 3, 8, 9, 10, 11]]).all()
    model = nn.Sequential(on.OrthogonalLinear(9, 9), layer)
    errors = on.orthogonality_error(model)
    assert [name for name, error in errors.items() if error != error] == ["1.weight"]
    with pytest.warns(on.OrthogonalityWarning, match=r"1\.weight"):
        on.OrthogonalityHook(model).look(1)


def test_case_23_a_nan_gradient_spoils_its_group_only():
    layer = on.OrthogonalLinear(9, 12, group_size=4)
    upstream = torch.ones(12, 9)
    upstream[5, 2] = float("nan")
    (gradient,) = torch.autograd.grad(weight(layer), free(layer), upstream)
    assert torch.isnan(gradient[4:8]).any()
    assert torch.isfinite(gradient[:4]).all()
    assert torch.isfinite(gradient[8:]).all()


def test_case_24_layers_of_one_or_two_inputs_and_models_of_one_layer():
    with pytest.raises(ValueError, match=r"d = 1\b.*center=False"):
        on.orthogonal_weight_norm(nn.Linear(1, 4), center=True)
    one = on.orthogonal_weight_norm(nn.Linear(1, 4))
    torch.testing.assert_close(weight(one).abs(), torch.ones(4, 1))
    with pytest.warns(UserWarning, match="learns nothing"):
        two = on.orthogonal_weight_norm(nn.Linear(2, 4), center=True)
    torch.testing.assert_close(weight(two).abs(), torch.full((4, 2), 0.5**0.5))
    (gradient,) = torch.autograd.grad(two(torch.randn(3, 2)).square().sum(), free(two))
    assert gradient.abs().max() < 1e-5
    with pytest.raises(ValueError, match=r"Linear.*\b1 left \(output layer"):
        on.orthogonalize_(nn.Linear(8, 4))
    assert list(on.orthogonality_error(on.orthogonalize_(nn.Linear(8, 4), filter_fn=lambda *_: True))) == ["weight"]


def test_case_24_empty_gives_empty():
    assert on.functional.orthonormalize(torch.empty(0, 3, 5)).shape == (0, 3, 5)
    assert on.functional.orthonormalize(torch.empty(2, 0, 5)).shape == (2, 0, 5)
    with pytest.warns(UserWarning, match="Initializing zero-element tensors is a no-op"):
        layer = on.OrthogonalLinear(8, 0, scale="learned")
    assert layer(torch.randn(3, 8)).shape == (3, 0)
    assert on.orthogonality_error(layer) == {"weight": 0.0}
    report = on.inspect(on.renormalize_(layer)).layers[0]
    assert (report.shape, report.v_norm, report.condition_number, report.scale) == ((0, 8), 0.0, 1.0, None)
    assert weight(on.fold(layer)).shape == (0, 8)
    assert scale(layer).shape == (0,)


def test_case_25_a_larger_v_trains_slower_is_shown_and_renormalized():
    x, y, start = torch.randn(64, 16).double(), torch.randn(64, 8).double(), torch.randn(8, 16).double()
    moved, norms = [], []
    for size, renormalize in ((1.0, False), (10.0, False), (10.0, True)):
        # In float64, since the smallest step moves W by less than float32 resolves.
        layer = on.OrthogonalLinear(16, 8, bias=False, dtype=torch.float64)
        layer.weight = size * start
        if renormalize:
            on.renormalize_(layer, norm=4.0)
        norms.append(on.inspect(layer).layers[0].v_norm)
        before = weight(layer).detach().clone()
        nn.functional.mse_loss(layer(x), y).backward()
        torch.optim.SGD([free(layer)], lr=0.1).step()  # so that the rounding of W does not show
        moved.append(float((weight(layer).detach() - before).norm()))
    assert norms[1] == pytest.approx(10 * norms[0], rel=1e-5)
    assert norms[2] == pytest.approx(4.0, rel=1e-5)
    assert moved[0] / moved[1] == pytest.approx(100.0, rel=0.02)
    assert 0.3 < moved[2] / moved[0] < 3  # of the size of the first start again
