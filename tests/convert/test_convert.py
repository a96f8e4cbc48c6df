"""`orthogonalize_`: which layers, how, all or nothing, and a model that trains as before."""

import dataclasses
import inspect
import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils import prune

import orthonorm as on
from orthogonal_layers import error_of_rows, filters, free, map_of, scale, weight, well_conditioned


class Convolutional(nn.Module):
    """One layer of each kind that the default filter has an opinion on."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.multiplied = nn.Conv2d(8, 16, 3, padding=1, groups=8)
        self.grouped = nn.Conv2d(16, 8, 1, groups=4)
        self.pointwise = nn.Conv2d(8, 2, 1)
        self.two_inputs = nn.Conv2d(2, 4, 1)
        self.single_channel = nn.Conv2d(4, 1, 1)
        self.of_one_channel = nn.Conv2d(1, 4, 3)
        self.up = nn.ConvTranspose2d(4, 3, 2)
        self.norm = nn.BatchNorm2d(3)
        self.hidden = nn.Linear(3, 16)
        self.classifier = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.multiplied(self.depthwise(self.stem(x)))
        x = self.of_one_channel(self.single_channel(self.two_inputs(self.pointwise(self.grouped(x)))))
        return self.classifier(self.hidden(self.norm(self.up(x)).mean((-1, -2))))


def mlp() -> Any:
    return nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))


def every_layer(module: nn.Module, _: str) -> bool:
    return isinstance(module, nn.Linear | nn.modules.conv._ConvNd)


def converted(model: nn.Module) -> list[str]:
    return [name.removesuffix(".weight") for name in on.orthogonality_error(model)]


def state(model: nn.Module) -> dict[str, Any]:
    """All that a refused conversion has to leave as it was."""
    return {
        "classes": [(name, type(module)) for name, module in model.named_modules()],
        "keys": list(model.state_dict()),
        "parameters": [id(parameter) for parameter in model.parameters()],
        "values": [parameter.tolist() for parameter in model.parameters()],
        "hooks": [len(module._load_state_dict_pre_hooks) for module in model.modules()],
    }


def test_the_default_filter_leaves_out_what_is_orthogonal_already():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2))
    on.orthogonal_weight_norm(model[0])
    usual = on.default_filter(model)
    on.orthogonalize_(model, filter_fn=lambda module, name: usual(module, name))
    assert list(on.orthogonality_error(model)) == ["0.weight", "1.weight"]


@pytest.mark.usefixtures("unenforced")
def test_the_default_filter_is_of_a_module():
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module; got str"):
        on.default_filter("model")  # type: ignore[arg-type]


def test_the_default_filter_leaves_out_depthwise_small_and_the_classifier():
    model = Convolutional()
    assert on.orthogonalize_(model) is model
    assert converted(model) == ["stem", "grouped", "pointwise", "single_channel", "of_one_channel", "up", "hidden"]
    assert model(torch.randn(2, 3, 6, 6)).shape == (2, 10)
    assert type(model.classifier) is nn.Linear
    assert type(model.depthwise) is nn.Conv2d


def test_a_filter_sees_each_module_with_its_full_name_and_decides():
    model, seen = nn.Sequential(mlp(), nn.Linear(4, 4)), []

    def choose(module: nn.Module, fqn: str) -> bool:
        seen.append((module, fqn))
        return fqn in ("0.2", "1")

    on.orthogonalize_(model, filter_fn=choose)
    assert converted(model) == ["0.2", "1"]
    assert [fqn for _, fqn in seen] == ["", "0", "0.0", "0.1", "0.2", "0.3", "0.4", "1"]
    assert seen[0][0] is model


def test_the_group_size_of_a_config_is_cut_to_each_layers_limit():
    model = on.orthogonalize_(mlp(), on.OrthogonalConfig(group_size=9), every_layer)
    layers: Any = model
    assert [map_of(layers[i]).sizes for i in (0, 2, 4)] == [(8,), (6,), (4,)]
    assert [map_of(layers[i]).limit for i in (0, 2, 4)] == [12, 8, 6]
    wide: Any = on.orthogonalize_(nn.Sequential(nn.Linear(4, 8)), on.OrthogonalConfig(group_size=9), every_layer)
    assert map_of(wide[0]).sizes == (4, 4)
    wide = on.orthogonalize_(nn.Sequential(nn.Linear(4, 8)), on.OLMConfig(group_size=9), every_layer)
    assert map_of(wide[0]).sizes == (3, 3, 2)
    # Its 4 filters have 8 entries each; read as it lies, the kernel would be 8 rows of 4.
    transposed: Any = on.orthogonalize_(nn.ConvTranspose1d(8, 4, 1), on.OrthogonalConfig(group_size=9), every_layer)
    assert map_of(transposed).sizes == (4,)


def test_every_field_of_a_config_reaches_the_layers():
    config = on.OrthogonalConfig(
        group_size=5, center=True, grouping="tail", scale=2.0, method="newton", precision="float64"
    )
    model: Any = on.orthogonalize_(nn.Sequential(nn.Linear(8, 7)), config, every_layer)
    assert (map_of(model[0]).sizes, map_of(model[0]).limit) == ((5, 2), 7)
    assert (map_of(model[0]).scale, map_of(model[0]).method) == (2.0, "newton")
    assert map_of(model[0]).precision == "float64"
    assert {field.name for field in dataclasses.fields(config)} == {
        "group_size",
        "center",
        "grouping",
        "tall",
        "scale",
        "initial",
        "method",
        "precision",
        "blocks",
        "input_weights",
    }


def test_parameters_stay_the_same_objects_and_an_optimizer_goes_on():
    model = mlp()
    before = {id(parameter) for parameter in model.parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    on.orthogonalize_(model)
    assert {id(parameter) for parameter in model.parameters()} == before
    x, y, losses = torch.randn(64, 12), torch.randint(4, (64,)), []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    assert max(error_of_rows(filters(model[i]), map_of(model[i]).sizes) for i in (0, 2)) < 2e-6


def tied() -> Any:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2))
    model[2].weight = model[0].weight
    return model


def test_tied_weights_stay_tied_with_one_scale():
    model = on.orthogonalize_(tied(), on.OrthogonalConfig(scale="row_norms"))
    layers: Any = model
    assert free(layers[0]) is free(layers[2])
    assert scale(layers[0]) is scale(layers[2])
    with torch.no_grad():
        free(layers[0]).normal_()
        scale(layers[0]).uniform_(1.0, 2.0)
    assert torch.equal(weight(layers[0]), weight(layers[2]))
    on.fold_(model)
    assert layers[0].weight is layers[2].weight
    assert len(list(model.parameters())) == 5  # one shared weight, three biases, the classifier's weight


def test_a_tied_plain_checkpoint_loads():
    plain, model = tied(), on.orthogonalize_(tied(), on.OrthogonalConfig(scale="row_norms"))
    model.load_state_dict(plain.state_dict())
    layers: Any = model
    torch.testing.assert_close(free(layers[2]).detach().double(), well_conditioned(plain[0].weight), rtol=0, atol=1e-5)
    torch.testing.assert_close(scale(layers[2]), plain[0].weight.detach().norm(dim=1))


def test_a_tied_embedding_is_refused_and_named():
    model = nn.ModuleDict({"embedding": nn.Embedding(20, 8), "hidden": nn.Linear(8, 8), "head": nn.Linear(8, 20)})
    head: Any = model["head"]
    head.weight = model["embedding"].weight
    with pytest.raises(ValueError, match=r"^embedding\.weight "):
        on.orthogonalize_(model, filter_fn=every_layer)
    on.orthogonalize_(model)  # the head is the last Linear: the default leaves it, and its tie, alone
    assert converted(model) == ["hidden"]


def test_a_module_used_twice_is_converted_once():
    shared = nn.Linear(8, 8)
    model = on.orthogonalize_(nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(8, 2)))
    assert converted(model) == ["0"]


def test_a_plain_checkpoint_loads_into_a_converted_model():
    plain, model = Convolutional(), on.orthogonalize_(Convolutional(), on.OrthogonalConfig(scale="row_norms"))
    missing, unexpected = model.load_state_dict(plain.state_dict(), strict=True)
    assert (missing, unexpected) == ([], [])
    nested: Any = model
    assert torch.equal(free(nested.up), map_of(nested.up).initial_V(plain.up.weight))
    torch.testing.assert_close(free(nested.up).detach().norm(), plain.up.weight.detach().norm())
    assert torch.equal(nested.depthwise.weight, plain.depthwise.weight)


def test_converting_makes_the_weights_that_loading_makes():
    plain = Convolutional()
    fresh = on.orthogonalize_(Convolutional())
    fresh.load_state_dict(plain.state_dict())
    on.orthogonalize_(plain)
    ours: Any = fresh
    for name in converted(plain):
        assert torch.equal(weight(plain.get_submodule(name)), weight(ours.get_submodule(name)))


def test_a_lazy_layer_is_refused_by_name():
    model = nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 4))
    for choose in (None, every_layer):
        with pytest.raises(ValueError, match=r"^0\.weight .*lazy"):
            on.orthogonalize_(model, filter_fn=choose)


def test_a_warning_names_the_layer():
    model: Any = nn.Sequential(mlp(), nn.Linear(4, 4))
    with torch.no_grad():
        model[0][2].weight.zero_()
    with pytest.warns(UserWarning, match=r"^0\.2\.weight has lost 6 of its 6 directions"):
        on.orthogonalize_(model)


@pytest.mark.slow
def test_resnet18_converts_and_trains_a_step():
    model = torchvision.models.resnet18(num_classes=10)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    on.orthogonalize_(model, on.OrthogonalConfig(group_size=64))
    names = converted(model)
    assert len(names) == 20
    assert "fc" not in names
    optimizer = torch.optim.SGD(on.param_groups(model, weight_decay=5e-4), lr=0.1, momentum=0.9)
    x, y = torch.randn(8, 3, 32, 32), torch.arange(8)
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert not torch.equal(free(model.conv1), before["conv1.weight"])
    assert nn.functional.cross_entropy(model(x), y) < loss
    errors = on.orthogonality_error(model)
    assert max(errors.values()) < 5e-6
    assert error_of_rows(filters(model.layer1[0].conv1), (64,)) < 5e-6
    assert list(on.fold_(model).state_dict()) == list(torchvision.models.resnet18(num_classes=10).state_dict())


def only(*names: str) -> Callable[[nn.Module, str], bool]:
    return lambda _, fqn: fqn in names


def half_converted() -> nn.Module:
    return on.orthogonalize_(mlp(), filter_fn=only("2"))


def with_depth(d: int) -> nn.Module:
    return nn.Sequential(nn.Linear(12, d), nn.Linear(d, 4), nn.Linear(4, 4))


def rewritten(rewrite: Callable[[nn.Module], nn.Module]) -> nn.Module:
    """A model of which one layer's weight is made in a hook, by a function that torch keeps for old code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return nn.Sequential(nn.Linear(4, 4), rewrite(nn.Linear(4, 4)))


WRONG: dict[str, tuple[nn.Module | str, Any, Any, type[Exception], str]] = {
    "not a module": ("model", None, None, TypeError, r"model must be a torch\.nn\.Module; got str"),
    "not a config": (
        mlp(),
        64,
        None,
        TypeError,
        r"must be an OrthogonalConfig; got int\. Write OrthogonalConfig\(\)",
    ),
    "the class": (
        mlp(),
        on.OLMConfig,
        None,
        TypeError,
        r"must be an OrthogonalConfig; got the class OLMConfig\. Write OLMConfig\(\)",
    ),
    "not a filter": (mlp(), None, "conv", TypeError, r"filter_fn must be a function .*; got 'conv'"),
    "filter of one": (
        mlp(),
        None,
        lambda _: True,
        TypeError,
        r"of two arguments, \(module, fully .* got <function .*Write filter_fn=lambda module, name",
    ),
    "filter of none": (mlp(), None, nn.Identity().train, TypeError, "of two arguments.*got <bound method"),
    "nothing by default": (
        nn.Sequential(nn.Linear(12, 4)),
        None,
        None,
        ValueError,
        r"no weight of this Sequential: 1 left \(output layer: the last Linear .*Pass filter_fn=lambda",
    ),
    "nothing by a filter": (
        mlp(),
        None,
        only("7"),
        ValueError,
        r"filter_fn converts no weight .*: 3 left",
    ),
    "everything converted": (
        on.orthogonalize_(mlp()),
        None,
        None,
        ValueError,
        r"converts no weight .*: 2 left \(orthogonal already\); 1 left .*Call fold_ first",
    ),
    "one orthogonal layer": (
        on.OrthogonalLinear(12, 4),
        None,
        None,
        ValueError,
        r"^every weight of this \w+ is orthogonal already\. Call fold_ first",
    ),
    "nothing by a filter where some are converted": (
        half_converted(),
        None,
        only("7"),
        ValueError,
        r"filter_fn converts no weight .*: 2 left \(filter_fn does not choose it\); 1 left",
    ),
    "one converted": (
        half_converted(),
        None,
        only("0", "2"),
        ValueError,
        r"^2\.weight is parametrized already, by OrthogonalWeightNorm\. Fold it first",
    ),
    "torch's parametrization": (
        nn.Sequential(nn.Linear(4, 4), nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))),
        None,
        only("0", "1"),
        ValueError,
        r"^1\.weight is parametrized already, by _WeightNorm\. Remove that one first",
    ),
    "an unsupported module": (
        nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)),
        None,
        only("0", "1"),
        TypeError,
        r"the filter chose '1', a LayerNorm\. Narrow the filter, or call orthogonal_weight_norm",
    ),
    "the model itself": (mlp(), None, only(""), TypeError, r"the filter chose 'the model', a Sequential"),
    "one of two that share": (tied(), None, only("0"), ValueError, r"^2\.weight shares its tensor .* Choose both"),
    "the other of two that share": (tied(), None, only("2", "3"), ValueError, r"^0\.weight shares its tensor"),
    "torch's older weight_norm": (
        rewritten(nn.utils.weight_norm),
        None,
        only("0", "1"),
        ValueError,
        r"^1\.weight is rewritten before each .* by torch's weight_norm.*remove_weight_norm\(module, 'weight'\)",
    ),
    "torch's older spectral_norm": (
        rewritten(nn.utils.spectral_norm),
        None,
        only("0", "1"),
        ValueError,
        r"^1\.weight is rewritten .*spectral_norm.*remove_spectral_norm\(module, 'weight'\)",
    ),
    "a pruned layer": (
        rewritten(lambda layer: prune.l1_unstructured(layer, "weight", 3)),
        None,
        only("0", "1"),
        ValueError,
        r"^1\.weight is rewritten .*pruning.*torch\.nn\.utils\.prune\.remove\(module, 'weight'\)",
    ),
    "one input": (
        with_depth(1),
        on.OLMConfig(),
        only("0", "1"),
        ValueError,
        r"^1\.weight: centring needs rows of at least 2",
    ),
    "complex": (
        nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4, dtype=torch.complex64)),
        None,
        only("0", "1"),
        TypeError,
        r"^1\.weight is complex",
    ),
}


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize(("model", "config", "choose", "exception", "message"), WRONG.values(), ids=WRONG)
def test_a_refusal_says_why_and_changes_nothing(
    model: Any, config: Any, choose: Any, exception: type[Exception], message: str
):
    before = state(model) if isinstance(model, nn.Module) else None
    with pytest.raises(exception, match=message):
        on.orthogonalize_(model, config, choose)
    assert before is None or state(model) == before


class Registered(nn.Linear):
    """A class that asks each class derived from it for a keyword, so that torch can derive none."""

    def __init_subclass__(cls, *, kind: str, **options: Any) -> None:
        super().__init_subclass__(**options)


def with_a_class_that_allows_none_below() -> Any:
    model: Any = nn.Sequential(nn.Linear(6, 6), nn.LSTM(6, 6), Registered(6, 6), nn.Linear(6, 3))
    with torch.no_grad():
        model[0].weight[1] = model[0].weight[0]  # completed, so V gets other memory
    return model


@pytest.mark.filterwarnings("ignore:0.weight has lost 1 of its 6 directions:UserWarning")
def test_a_class_that_torch_cannot_derive_from_is_refused_and_nothing_changed():
    model = with_a_class_that_allows_none_below()
    before, weights = state(model), [parameter.data_ptr() for parameter in model.parameters()]
    x = torch.randn(2, 3, 6)
    outputs = model[3](model[2](model[1](model[0](x))[0]))
    message = r"^2\.weight: torch's parametrize derives a class from Registered, .* allows none \(.*'kind'\)\. Let its"
    with pytest.raises(TypeError, match=message):
        on.orthogonalize_(model, on.OrthogonalConfig(scale="row_norms"), lambda _, fqn: fqn != "")
    assert state(model) == before
    assert [parameter.data_ptr() for parameter in model.parameters()] == weights
    assert torch.equal(model[3](model[2](model[1](model[0](x))[0])), outputs)
    with pytest.raises(TypeError, match=r"^weight of Registered: torch's parametrize derives"):
        on.orthogonal_weight_norm(model[2])
    assert state(model) == before


def test_a_conversion_that_is_interrupted_has_changed_nothing(monkeypatch: pytest.MonkeyPatch):
    model, registered = nn.Sequential(nn.LSTM(6, 6), nn.Linear(6, 4)), []
    handle = model[0].register_load_state_dict_pre_hook(lambda *_: None)
    before, complete = state(model), on.OrthogonalWeightNorm.complete

    def interrupted(self: on.OrthogonalWeightNorm, weight: Tensor) -> Tensor:
        registered.append(self.label)
        if len(registered) == 2:
            raise KeyboardInterrupt
        return complete(self, weight)

    monkeypatch.setattr(on.OrthogonalWeightNorm, "complete", interrupted)
    with pytest.raises(KeyboardInterrupt):
        on.orthogonalize_(model, on.OrthogonalConfig(input_weights=True), lambda _, fqn: fqn != "")
    assert registered == ["0.weight_ih_l0", "0.weight_hh_l0"]
    assert state(model) == before
    handle.remove()
    assert len(model[0]._load_state_dict_pre_hooks) == 0


CONFIGS = {
    "group of zero": ({"group_size": 0}, ValueError, r"group_size must be at least 1, or None for the limit; got 0"),
    "group not whole": ({"group_size": 64.0}, TypeError, r"group_size must be a whole number or None; got 64\.0"),
    "unknown grouping": ({"grouping": "even"}, ValueError, r"grouping must be one of 'balanced', 'tail'; got 'even'"),
    "unknown method": (
        {"method": "svd"},
        ValueError,
        r"method must be one of 'auto', 'eigh', 'newton'; got 'svd'",
    ),
    "scale zero": ({"scale": 0.0}, ValueError, r"scale must be .* a positive number; got 0\.0"),
    "scale true": ({"scale": True}, TypeError, r"scale must be .*; got True\. Write scale='learned'"),
    "initial unknown": ({"initial": "zero"}, ValueError, r"initial must be .*; got 'zero'"),
    "columns in groups": (
        {"tall": "columns", "group_size": 8},
        ValueError,
        r"group_size must be None .*; got group_size=8 ",
    ),
    "centred columns": ({"tall": "columns", "center": True}, ValueError, r"center False .*center=True\."),
    "scale infinite": ({"scale": float("inf")}, ValueError, r"a positive number; got inf"),
    "blocks of zero": ({"blocks": 0}, ValueError, r"blocks, as a number, must be at least 1, or None .*; got 0"),
    "blocks negative": ({"blocks": (4, -4)}, ValueError, r"sizes of blocks must be positive .*; got \(4, -4\)"),
    "blocks empty": ({"blocks": ()}, ValueError, r"sizes of blocks must be positive .*; got \(\)"),
    "blocks text": ({"blocks": "4"}, TypeError, r"number of equal blocks, or the sizes of the blocks; got '4'"),
    "blocks of true": ({"blocks": True}, TypeError, r"number of equal blocks, or the sizes of the blocks; got True"),
    "center text": ({"center": "no"}, TypeError, r"center must be True or False; got 'no'"),
    "unknown option": ({"groups": 8}, TypeError, r"no option 'groups'; did you mean 'group_size'\? Its options are gr"),
    "unknown and far": (
        {"rate": 8},
        TypeError,
        r"OrthogonalConfig has no option 'rate'\. Its options are group_size, center",
    ),
    "scale text": ({"scale": "learn"}, ValueError, r"a positive number; got 'learn'"),
}


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize(("options", "exception", "message"), CONFIGS.values(), ids=CONFIGS)
def test_a_config_that_no_layer_could_take_is_refused(
    options: dict[str, Any], exception: type[Exception], message: str
):
    with pytest.raises(exception, match=message):
        on.OrthogonalConfig(**options)


@pytest.mark.usefixtures("unenforced")
def test_a_config_takes_its_options_by_name_and_says_which_there_are():
    make: Any = on.OrthogonalConfig
    with pytest.raises(TypeError, match=r"group_size=8.*\(8,\)"):
        make(8)
    assert list(inspect.signature(on.OrthogonalConfig).parameters)[:2] == ["group_size", "center"]
    assert dataclasses.replace(on.OrthogonalConfig(scale="row_norms"), group_size=8) == on.OrthogonalConfig(
        group_size=8, scale="row_norms"
    )


@st.composite
def small_models(draw: st.DrawFn) -> tuple[nn.Sequential, Tensor]:
    """A chain of Linear layers, or of one-dimensional convolutions and a Linear, with a batch for it."""
    widths = draw(st.lists(st.integers(3, 9), min_size=2, max_size=4))
    torch.manual_seed(draw(st.integers(0, 2**16)))
    if draw(st.booleans()):
        layers: list[nn.Module] = []
        for d, n in itertools.pairwise(widths):
            layers += [nn.Linear(d, n, bias=draw(st.booleans()), dtype=torch.float64), nn.Tanh()]
        return nn.Sequential(*layers), torch.randn(6, widths[0], dtype=torch.float64)
    layers = []
    for d, n in itertools.pairwise(widths):
        kind = draw(st.sampled_from([nn.Conv1d, nn.ConvTranspose1d]))
        kernel, groups = draw(st.integers(1, 3)), draw(st.sampled_from([1, 3]))
        if d % groups or n % groups or d // groups * kernel < 3:
            groups = 1
        layers += [kind(d, n, kernel, groups=groups, dtype=torch.float64), nn.Tanh()]
    return nn.Sequential(*layers), torch.randn(2, widths[0], 12, dtype=torch.float64)


@given(
    small_models(),
    st.one_of(st.none(), st.integers(1, 9)),
    st.booleans(),
    st.sampled_from(["balanced", "tail"]),
    st.sampled_from([None, "learned", "row_norms", 2.0]),
    st.sampled_from(["eigh", "newton"]),
)
def test_any_model_converts_trains_and_folds_to_the_same_outputs(
    case: tuple[nn.Sequential, Tensor],
    group_size: int | None,
    center: bool,
    grouping: Any,
    scaled: Any,
    method: Any,
):
    model, x = case
    keys = {name: value.shape for name, value in model.state_dict().items()}
    config = on.OrthogonalConfig(group_size=group_size, center=center, grouping=grouping, scale=scaled, method=method)
    on.orthogonalize_(model, config, every_layer)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    target = torch.randn_like(model(x))
    for _ in range(2):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), target).backward()
        optimizer.step()
    outputs, errors = model(x).detach(), on.orthogonality_error(model)
    assert max(errors.values()) < 1e-12
    on.fold_(model)
    assert {name: value.shape for name, value in model.state_dict().items()} == keys
    torch.testing.assert_close(model(x), outputs, rtol=0, atol=1e-12)
    assert all(type(module).__module__.startswith("torch.") for module in model.modules())


def test_a_conversion_that_fails_leaves_the_other_parametrizations_of_its_modules():
    model = nn.Sequential(nn.LSTM(6, 6), Registered(6, 6))
    nn.utils.parametrizations.weight_norm(model[0], "weight_ih_l0")
    keys = list(model.state_dict())
    for _ in range(2):
        with pytest.raises(TypeError, match=r"^1\.weight: torch's parametrize derives a class"):
            on.orthogonalize_(model, None, lambda _, fqn: fqn in ("0", "1"))
        assert list(model.state_dict()) == keys
    on.orthogonalize_(model, None, lambda _, fqn: fqn == "0")
    assert on.orthogonality_error(model)["0.weight_hh_l0"] < 1e-5
