"""`fold_` and `fold`: the plain model that computes the same, and nothing else changed."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import orthonorm as on
from orthogonal_layers import KINDS, Kind, error_of_rows, filters, free, name_of, scale, weight


def plain_model() -> Any:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, groups=1, bias=False),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 2),
        nn.Flatten(),
        nn.Linear(4 * 5 * 5, 6),
        nn.Linear(6, 2),
    )


def model_of(scaled: Any = "row_norms") -> Any:
    model = on.orthogonalize_(plain_model(), on.OrthogonalConfig(scale=scaled))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(0.5, 2.0)
    return model


INPUT = (2, 3, 6, 6)


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_a_folded_layer_is_torchs_and_computes_the_same(kind: Kind):
    layer, x = kind.build(scale="learned"), torch.randn(kind.shape)
    outputs, rows = layer(x).detach(), filters(layer)
    assert on.fold_(layer) is layer
    assert type(layer) is kind.plain
    assert repr(layer) == repr(kind.build_plain())
    assert torch.equal(layer(x), outputs)
    assert torch.equal(filters(layer), rows)
    assert error_of_rows(rows, kind.sizes) < 2e-6


@pytest.mark.parametrize("scaled", [None, "row_norms", 2.0])
def test_a_folded_model_is_the_plain_one_in_types_keys_and_shapes(scaled: Any):
    model, plain, x = model_of(scaled).eval(), plain_model(), torch.randn(INPUT)
    outputs = model(x).detach()
    on.fold_(model)
    assert [type(module) for module in model.modules()] == [type(module) for module in plain.modules()]
    shapes = [(name, value.shape, value.dtype) for name, value in model.state_dict().items()]
    assert sorted(shapes) == sorted((name, value.shape, value.dtype) for name, value in plain.state_dict().items())
    assert torch.equal(model(x), outputs)
    plain.load_state_dict(model.state_dict())
    torch.testing.assert_close(plain.eval()(x), outputs, rtol=0, atol=0)


def test_biases_buffers_flags_and_gradient_flags_stay():
    model = model_of()
    model[0].eval()
    model[5].bias.requires_grad_(False)
    free(model[3]).requires_grad_(False)
    bias, running, parameter = model[5].bias, model[1].running_mean, free(model[5])
    flags = [module.training for module in plain_model().modules()]
    flags[1] = False
    on.fold_(model)
    assert [module.training for module in model.modules()] == flags
    assert model[5].bias is bias
    assert model[1].running_mean is running
    assert model[5].weight is parameter  # an optimizer that holds it goes on
    assert [p.requires_grad for p in (model[5].bias, model[3].weight, model[5].weight)] == [False, False, True]


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_types_stay(dtype: torch.dtype):
    model = model_of().to(dtype)
    on.fold_(model)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}


def test_hooks_stay_and_the_hook_for_plain_checkpoints_goes():
    model, calls = model_of(), []
    layer = model[5]
    layer.register_forward_hook(lambda *_: calls.append("forward"))
    layer.register_forward_pre_hook(lambda *_: calls.append("before"))
    layer.register_full_backward_hook(lambda *_: calls.append("backward"))
    layer.register_state_dict_post_hook(lambda *_: calls.append("saved"))
    layer.register_load_state_dict_pre_hook(lambda *_: calls.append("loading"))
    on.fold_(model)
    model(torch.randn(INPUT)).sum().backward()
    layer.load_state_dict(layer.state_dict())
    assert calls == ["before", "forward", "backward", "saved", "loading"]
    assert [len(module._load_state_dict_pre_hooks) for module in model] == [0, 0, 0, 0, 0, 1, 0]


class HandsOn(nn.Module):
    """A wrapper, as adapters are, that looks like the layer in it."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.inner(x)


def test_a_wrapper_that_hands_on_attributes_is_not_taken_for_its_layer():
    model, x = HandsOn(on.OrthogonalLinear(6, 4)), torch.randn(3, 6)
    expected = model(x)
    assert list(on.orthogonality_error(model)) == ["inner.weight"]
    plain = on.fold_(model)
    assert isinstance(plain, HandsOn)
    assert list(plain.state_dict()) == ["inner.weight", "inner.bias"]
    torch.testing.assert_close(plain(x), expected)


def test_a_copy_that_loses_a_wrapper_is_refused():
    model = nn.Sequential(HandsOn(on.OrthogonalLinear(6, 4)))
    before = model(torch.ones(1, 6))
    with pytest.raises(TypeError, match=r"Sequential .*0\.inner\.weight.*fold_"):
        on.fold(model)
    torch.testing.assert_close(model(torch.ones(1, 6)), before)


def test_folding_twice_is_folding_once():
    model, x = model_of().eval(), torch.randn(INPUT)
    once = on.fold_(model)
    before = ({name: value.clone() for name, value in once.state_dict().items()}, repr(once), once(x))
    twice = on.fold_(once)
    assert twice is once
    assert repr(twice) == before[1]
    assert torch.equal(twice(x), before[2])
    assert all(torch.equal(value, before[0][name]) for name, value in twice.state_dict().items())


def test_a_plain_model_is_left_as_it_is():
    model = plain_model()
    assert on.fold_(model) is model
    assert repr(model) == repr(plain_model())


def test_fold_leaves_the_original_training():
    model, x = model_of().eval(), torch.randn(INPUT)
    outputs, text = model(x).detach(), repr(model)
    plain: Any = on.fold(model)
    assert repr(model) == text
    assert torch.equal(model(x), outputs)
    assert torch.equal(plain(x), outputs)
    assert not {id(p) for p in model.parameters()} & {id(p) for p in plain.parameters()}
    folded = weight(plain[5]).detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).square().sum().backward()
    optimizer.step()
    assert not torch.equal(model(x), outputs)
    assert torch.equal(plain[5].weight, folded)
    assert max(on.orthogonality_error(model).values()) < 5e-6


@pytest.mark.parametrize("which", ["copy", "original"])
def test_folding_one_of_two_deep_copies_leaves_the_other_working(which: str):
    # torch gives a module and its deep copy one class, and folding changes classes.
    original: Any = on.orthogonal_weight_norm(nn.Linear(8, 4), scale="row_norms")
    x = torch.randn(3, 8)
    clone = copy.deepcopy(original)
    assert type(clone) is type(original)
    outputs = original(x).detach()
    folded, kept = (clone, original) if which == "copy" else (original, clone)
    on.fold_(folded)
    assert type(folded) is nn.Linear
    assert hasattr(kept, "weight")
    assert torch.equal(kept(x), outputs)
    assert torch.equal(folded(x), outputs)
    kept(x).sum().backward()
    assert free(kept).grad is not None
    kept.reset_parameters()
    kept.weight = torch.randn(4, 8)
    assert error_of_rows(filters(kept) / scale(kept).detach()[:, None], (4,)) < 2e-6
    on.fold_(kept)
    assert type(kept) is nn.Linear


def test_a_folded_model_pickles_and_saves_whole():
    model = on.fold(model_of()).eval()
    x = torch.randn(INPUT)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for loaded in (pickle.loads(pickle.dumps(model)), torch.load(file, weights_only=False)):
        assert torch.equal(loaded(x), model(x))


def test_a_folded_model_converts_back_to_the_same_function():
    model, x = model_of().double().eval(), torch.randn(INPUT, dtype=torch.float64)
    outputs = model(x).detach()
    again = on.orthogonalize_(on.fold(model), on.OrthogonalConfig(scale="row_norms"))
    torch.testing.assert_close(again(x), outputs, rtol=1e-12, atol=1e-12)
    assert list(on.orthogonality_error(again)) == list(on.orthogonality_error(model))


def test_a_subclass_of_ours_stays_one():
    class Projection(on.OrthogonalLinear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(input)

    layer, x = Projection(8, 4), torch.randn(3, 8)
    outputs = layer(x).detach()
    on.fold_(layer)
    assert type(layer) is Projection
    assert not parametrize.is_parametrized(layer)
    assert torch.equal(layer(x), outputs)


def test_both_tensors_of_a_module_fold():
    lstm: Any = nn.LSTM(5, 6)
    for name in ("weight_ih_l0", "weight_hh_l0"):
        on.orthogonal_weight_norm(lstm, name, blocks=4, center=False, group_size=5)
    x = torch.randn(3, 2, 5)
    outputs = lstm(x)[0].detach()
    on.fold_(lstm)
    assert type(lstm) is nn.LSTM
    assert sorted(lstm.state_dict()) == sorted(nn.LSTM(5, 6).state_dict())
    # torch.jit.script takes the list as it is, without a forward before it.
    assert list(map(id, lstm._flat_weights)) == list(map(id, lstm.parameters()))
    torch.testing.assert_close(lstm(x)[0], outputs)
    assert len(lstm._load_state_dict_pre_hooks) == 0


def tied_to_a_table() -> Any:
    model: Any = nn.Sequential(nn.Embedding(8, 8), nn.Linear(8, 8, bias=False))
    model[1].weight = model[0].weight
    on.orthogonal_weight_norm(model[1])
    return model


def tied_through(first: dict[str, Any], second: dict[str, Any]) -> Any:
    """Two layers with one V, each orthogonal with options of its own, after a step that moves the scales apart."""
    model: Any = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    model[2].weight = model[0].weight
    on.orthogonal_weight_norm(model[0], **first)
    on.orthogonal_weight_norm(model[2], **second)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(4, 8)).square().sum().backward()
    optimizer.step()
    return model


SHARED = {
    "a table that reads V": (tied_to_a_table, torch.tensor([1, 2, 5])),
    "a scale each": (lambda: tied_through({"scale": "learned"}, {"scale": "learned"}), torch.randn(4, 8)),
    "two group sizes": (lambda: tied_through({"group_size": 2}, {"group_size": 4}), torch.randn(4, 8)),
}


@pytest.mark.parametrize(("build", "x"), SHARED.values(), ids=SHARED)
def test_layers_that_make_different_weights_of_one_v_fold_to_the_same_function(build: Callable[[], Any], x: Any):
    model = build()
    outputs, V = model(x).detach(), model[1 if len(model) == 2 else 0].parametrizations.weight.original
    frozen: Any = on.fold(model.requires_grad_(False))
    on.fold_(model.requires_grad_(True))
    for plain in (model, frozen):
        assert torch.equal(plain(x), outputs)
        assert plain[0].weight is not plain[-1].weight
        assert not any(parametrize.is_parametrized(module) for module in plain)
    assert model[0].weight is V  # with whoever reads it as it is, or the first
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


def test_layers_that_make_one_weight_of_one_v_stay_tied():
    model = tied_through({}, {})
    outputs = model(torch.ones(1, 8))
    on.fold_(model)
    assert model[0].weight is model[2].weight
    assert torch.equal(model(torch.ones(1, 8)), outputs)


class Weights(nn.Module):
    """Parameters of one shape, converted in whichever order."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("first", "between", "second", "last"):
            self.register_parameter(name, nn.Parameter(torch.randn(4, 6)))


def converted_in_order(*names: str) -> nn.Module:
    module = Weights()
    for name in names:
        on.orthogonal_weight_norm(module, name)
    return module


ALL = on.OrthogonalConfig(input_weights=True, scale="row_norms")
OUT_OF_ORDER: dict[str, tuple[Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "an LSTM": (
        lambda: nn.LSTM(5, 4, num_layers=2, bidirectional=True),
        lambda: on.orthogonalize_(nn.LSTM(5, 4, num_layers=2, bidirectional=True), ALL, lambda *_: True),
    ),
    "a GRU": (lambda: nn.GRU(5, 4), lambda: on.orthogonalize_(nn.GRU(5, 4), ALL, lambda *_: True)),
    "a cell": (lambda: nn.LSTMCell(5, 4), lambda: on.orthogonalize_(nn.LSTMCell(5, 4), ALL, lambda *_: True)),
    "backwards": (Weights, lambda: converted_in_order("last", "second", "first")),
    "all of them": (Weights, lambda: converted_in_order("between", "last", "first", "second")),
}


@pytest.mark.parametrize(("plain", "build"), OUT_OF_ORDER.values(), ids=OUT_OF_ORDER)
def test_parameters_keep_their_order_whichever_was_converted_first(
    plain: Callable[[], nn.Module], build: Callable[[], nn.Module]
):
    model, names = build(), [name for name, _ in plain().named_parameters()]
    free_names = [name.split(".")[1] for name, _ in model.named_parameters() if name.endswith(".original")]
    assert free_names == [name for name in names if name in free_names]
    on.fold_(model)
    assert [name for name, _ in model.named_parameters()] == names
    assert list(model.state_dict()) == list(plain().state_dict())


def test_an_optimizers_state_of_a_folded_model_goes_to_the_same_tensors():
    # An optimizer's state_dict knows parameters by their place only, and these two have one shape.
    plain = nn.LSTM(4, 4)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    plain(torch.randn(3, 2, 4))[0].sum().backward()
    optimizer.step()
    folded = on.fold(on.orthogonalize_(copy.deepcopy(plain), on.OrthogonalConfig(input_weights=True), lambda *_: True))
    loaded = torch.optim.SGD(folded.parameters(), lr=0.1, momentum=0.9)
    loaded.load_state_dict(optimizer.state_dict())
    for name, parameter in plain.named_parameters():
        momentum = loaded.state[folded.get_parameter(name)]["momentum_buffer"]
        assert torch.equal(momentum, optimizer.state[parameter]["momentum_buffer"])


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x

    def right_inverse(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


def test_another_parametrization_of_another_tensor_stays():
    layer: Any = on.OrthogonalLinear(8, 4)
    parametrize.register_parametrization(layer, "bias", Doubled())
    bias, x = layer.bias.detach().clone(), torch.randn(3, 8)
    outputs = layer(x).detach()
    on.fold_(layer)
    assert parametrize.is_parametrized(layer, "bias")
    assert not parametrize.is_parametrized(layer, "weight")
    assert torch.equal(layer.bias, bias)
    assert torch.equal(layer(x), outputs)


def doubled() -> nn.Module:
    model = nn.Sequential(on.OrthogonalLinear(8, 4), on.OrthogonalLinear(4, 3))
    parametrize.register_parametrization(model[1], "weight", Doubled())
    return model


WRONG: dict[str, tuple[Callable[[Any], Any], Any, type[Exception], str]] = {
    "fold_ of no module": (on.fold_, "model", TypeError, r"model must be a torch\.nn\.Module; got str"),
    "fold of no module": (on.fold, {"a": 1}, TypeError, r"model must be a torch\.nn\.Module; got dict"),
    "a second parametrization": (
        on.fold_,
        doubled(),
        ValueError,
        r"^1\.weight carries 2 parametrizations, .* Remove them first \(remove_parametrizations\)",
    ),
}


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize(("call", "model", "exception", "message"), WRONG.values(), ids=WRONG)
def test_a_refusal_says_why_and_changes_nothing(
    call: Callable[[Any], Any], model: Any, exception: type[Exception], message: str
):
    before = repr(model)
    with pytest.raises(exception, match=message):
        call(model)
    assert repr(model) == before
