"""`conversion_plan`: every weight with its decision, and `orthogonalize_` does what it shows."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import orthonorm as on
from orthogonal_layers import error_of_rows
from orthonorm.parametrizations._orthogonal_weights import orthogonal_weights, unconstrained


def decisions(plan: on.ConversionPlan) -> dict[str, str]:
    return {weight.name: weight.decision for weight in plan.weights}


def why(plan: on.ConversionPlan, name: str) -> str:
    return next(weight.why for weight in plan.weights if weight.name == name)


def body() -> list[nn.Module]:
    return [nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 6)]


class HeadsFirst(nn.Module):
    """Two heads that are registered before the body."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = nn.Linear(6, 4)
        self.boxes = nn.Linear(6, 5)
        self.body = nn.Sequential(*body())

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        return torch.cat([self.classes(x), self.boxes(x)], -1)


class Telling(HeadsFirst):
    """The same, and it tells its heads as timm's models do."""

    def __init__(self, *, as_list: bool = True) -> None:
        super().__init__()
        told: Any = [self.classes, self.boxes] if as_list else nn.ModuleList([self.classes, self.boxes])
        self.told = lambda: told

    def get_classifier(self) -> Any:
        return self.told()


class Unet(nn.Module):
    """A small U-Net: no Linear at all."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, padding=1)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.up = nn.ConvTranspose2d(8, 8, 2, stride=2)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = self.down(x)
        return self.out(torch.cat([skip, self.up(self.middle(nn.functional.max_pool2d(skip, 2)))], 1))


class TimedUnet(Unet):
    """With an embedding of the time in it, so that the last Linear is not the output."""

    def __init__(self) -> None:
        super().__init__()
        out = self.__dict__["_modules"].pop("out")
        self.time = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
        self.out = out


def recurrent() -> nn.Module:
    return nn.ModuleList([nn.Embedding(9, 6), nn.GRU(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)])


def tied() -> nn.Module:
    model = nn.ModuleDict({"table": nn.Embedding(9, 6), "hidden": nn.Linear(6, 6), "out": nn.Linear(6, 9)})
    model["out"].weight = model["table"].weight
    return model


MODELS: dict[str, tuple[Callable[[], nn.Module], dict[str, Any]]] = {
    "heads first": (HeadsFirst, {}),
    "heads first, excluded": (HeadsFirst, {"exclude": ("classes", "boxes")}),
    "heads told": (Telling, {}),
    "u-net": (Unet, {}),
    "recurrent": (recurrent, {}),
    "recurrent, all of it": (recurrent, {"filter_fn": lambda module, _: not isinstance(module, nn.ModuleList)}),
    "tied": (tied, {}),
    "attention": (lambda: nn.Transformer(12, 2, 1, 1, 16, batch_first=True), {"config": on.OLMConfig(group_size=4)}),
    "grouped": (lambda: nn.Sequential(nn.Conv2d(8, 8, 3, groups=4), nn.Linear(8, 4)), {}),
}


@pytest.mark.parametrize(("make", "options"), MODELS.values(), ids=MODELS)
def test_the_conversion_does_what_the_plan_shows_and_the_plan_changes_nothing(
    make: Callable[[], nn.Module], options: dict[str, Any]
):
    model = make()
    before = [(name, type(module)) for name, module in model.named_modules()], list(model.state_dict())
    plan = on.conversion_plan(model, **options)
    assert ([(name, type(module)) for name, module in model.named_modules()], list(model.state_dict())) == before
    parameters = {name: p for name, p in model.named_parameters(remove_duplicate=False) if p.ndim >= 2}
    assert {weight.name: weight.shape for weight in plan.weights} == {n: tuple(p.shape) for n, p in parameters.items()}
    on.orthogonalize_(model, **options)
    found = {layer.weight: layer for layer in on.inspect(model).layers}
    assert set(found) == {weight.name for weight in plan.converted}
    owners = {key: owner for key, _, _, owner in orthogonal_weights(model)}
    assert all(owners[weight.name].describe_groups() == weight.groups for weight in plan.converted)
    for key, module, name, owner in orthogonal_weights(model):
        assert found[key].groups == owner.sizes * len(owner.rows(unconstrained(module, name)))
    assert all(weight.why for weight in plan.weights)


def test_heads_registered_first_are_shown_and_excluded_by_name():
    plan = on.conversion_plan(HeadsFirst())
    assert decisions(plan) == {
        "classes.weight": "converted",
        "boxes.weight": "converted",
        "body.0.weight": "converted",
        "body.2.weight": "converted",
        "body.4.weight": "left",
    }
    assert "last Linear" in why(plan, "body.4.weight")
    cured = on.conversion_plan(HeadsFirst(), exclude=["classes", "box*"])
    assert [weight.name for weight in cured.left] == ["classes.weight", "boxes.weight", "body.4.weight"]
    assert "'box*'" in why(cured, "boxes.weight")


@pytest.mark.parametrize("as_list", [True, False], ids=["a list", "a module of modules"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["alone", "in another model"])
def test_heads_that_the_model_tells_are_left_and_no_other(as_list: bool, wrapped: bool):
    model: nn.Module = Telling(as_list=as_list)
    model = nn.Sequential(nn.Linear(12, 12), model) if wrapped else model
    plan = on.conversion_plan(model)
    assert [weight.name.removeprefix("1.") for weight in plan.left] == ["classes.weight", "boxes.weight"]
    assert all("get_classifier" in weight.why for weight in plan.left)


class Headless(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(*body())
        self.head = nn.Identity()

    def get_classifier(self) -> nn.Module:
        return self.head


def test_a_backbone_that_tells_of_no_head_has_none_and_a_new_head_is_found():
    assert on.conversion_plan(Headless()).left == ()
    plan = on.conversion_plan(nn.ModuleDict({"head": nn.Linear(6, 4), "backbone": Headless()}))
    assert [weight.name for weight in plan.left] == ["head.weight"]


class OtherMeaning(HeadsFirst):
    def get_classifier(self, task: str) -> nn.Module:
        raise AssertionError(task)


def test_a_method_of_the_same_name_and_another_meaning_tells_nothing():
    assert decisions(on.conversion_plan(OtherMeaning())) == decisions(on.conversion_plan(HeadsFirst()))


def test_the_output_convolution_of_a_unet_is_left():
    assert [weight.name for weight in on.conversion_plan(Unet()).left] == ["out.weight"]
    assert [weight.name for weight in on.conversion_plan(TimedUnet()).left] == ["time.1.weight", "out.weight"]


def test_a_convolution_alone_is_no_output_layer_and_a_linear_layer_is():
    assert on.conversion_plan(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())).left == ()
    assert on.conversion_plan(nn.Sequential(nn.Linear(3, 8), nn.ReLU())).converted == ()


def test_a_model_that_ends_in_attention_has_no_output_layer_in_it():
    plan = on.conversion_plan(nn.MultiheadAttention(12, 2))
    assert decisions(plan) == {"in_proj_weight": "converted", "out_proj.weight": "converted"}
    model = nn.ModuleDict({"up": nn.Linear(6, 12), "head": nn.Linear(12, 3), "attention": nn.MultiheadAttention(12, 2)})
    assert [weight.name for weight in on.conversion_plan(model).left] == ["head.weight"]


def frozen_backbone() -> nn.Sequential:
    return nn.Sequential(nn.Sequential(*body()).requires_grad_(False), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 4))


@pytest.mark.parametrize("choose", [None, lambda module, _: isinstance(module, nn.Linear)], ids=["default", "filter"])
def test_frozen_layers_keep_their_output_and_the_plan_says_so(choose: Any):
    model: Any = frozen_backbone()
    x = torch.randn(5, 12)
    expected = model[0](x)
    plan = on.conversion_plan(model, None, choose)
    assert all("frozen" in weight.why for weight in plan.left if weight.name.startswith("0."))
    on.orthogonalize_(model, None, choose)
    assert torch.equal(model[0](x), expected)
    assert "2.weight" in on.orthogonality_error(model)
    on.orthogonal_weight_norm(model[0][0])  # on purpose
    assert "0.0.weight" in on.orthogonality_error(model)


def test_a_model_that_is_frozen_whole_is_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"2 left \(frozen.*requires_grad_\(True\)"):
        on.orthogonalize_(nn.Sequential(*body()).requires_grad_(False))


NAMES = {
    "a layer": ("body.0", ["body.0.weight"]),
    "a weight": ("body.0.weight", ["body.0.weight"]),
    "a block": ("body", ["body.0.weight", "body.2.weight", "body.4.weight"]),
    "a pattern": ("*.[02]", ["body.0.weight", "body.2.weight"]),
    "several": (["classes", "*.2"], ["classes.weight", "body.2.weight"]),
}


@pytest.mark.parametrize(("exclude", "expected"), NAMES.values(), ids=NAMES)
def test_names_and_patterns_leave_out_weights_layers_and_blocks(exclude: Any, expected: list[str]):
    plan = on.conversion_plan(HeadsFirst(), exclude=exclude)
    assert [weight.name for weight in plan.left if "excluded" in weight.why] == expected


def test_a_layer_is_excluded_by_each_of_its_names():
    layer = nn.Linear(6, 6)
    model = nn.ModuleDict({"first": layer, "again": layer, "out": nn.Linear(6, 2)})
    with pytest.raises(ValueError, match=r"1 left \(excluded by 'again'\)"):
        on.orthogonalize_(model, exclude=["again"])


WRONG: dict[str, tuple[Any, type[Exception], str]] = {
    "a slip": (["clases"], ValueError, r"'clases'.*this HeadsFirst.*'classes'"),
    "a module without weights": (["body.1"], ValueError, r"'body\.1'"),
    "a pattern for nothing": (["*.attn"], ValueError, r"'\*\.attn'"),
    "the empty name": ([""], ValueError, "''"),
    "a number": (3, TypeError, "got 3"),
    "numbers": ([3], TypeError, r"got \[3\]"),
}


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize(("exclude", "exception", "message"), WRONG.values(), ids=WRONG)
def test_what_excludes_nothing_is_refused(exclude: Any, exception: type[Exception], message: str):
    for call in (on.conversion_plan, on.orthogonalize_):
        with pytest.raises(exception, match=message):
            call(HeadsFirst(), exclude=exclude)


def test_to_exclude_one_user_of_a_shared_weight_leaves_all():
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2))
    model[1].weight = model[0].weight
    for choose in (None, lambda module, _: isinstance(module, nn.Linear)):
        plan = on.conversion_plan(model, None, choose, exclude=["1"])
        assert [decisions(plan)[f"{i}.weight"] for i in range(3)] == ["left", "left", "converted"]
    assert [weight.tied_to for weight in plan.weights] == ["", "0.weight", "", ""]
    assert plan.entries() == 36 + 36 + 12


def test_a_layer_tied_to_an_embedding_stays_as_it_is():
    model = nn.ModuleDict({"table": nn.Embedding(6, 6), "mix": nn.Linear(6, 6), "h": nn.Linear(6, 6)})
    model["out"] = nn.Linear(6, 3)
    model["mix"].weight = model["table"].weight
    assert decisions(on.conversion_plan(model)) == {
        "table.weight": "left",
        "mix.weight": "left",
        "h.weight": "converted",
        "out.weight": "left",
    }


def test_the_plan_of_a_converted_model_shows_what_is_orthogonal_and_converts_the_rest():
    model = nn.Sequential(*body(), nn.Linear(6, 3))
    on.orthogonalize_(model, exclude=["0"])
    plan = on.conversion_plan(model)
    assert decisions(plan) == {
        "0.weight": "converted",
        "2.weight": "orthogonal",
        "4.weight": "orthogonal",
        "5.weight": "left",
    }
    assert [weight.name for weight in plan.left] == ["5.weight"]
    assert "2 are orthogonal already" in str(plan)
    assert plan.orthogonal[0].groups == "1 group of 6 rows"
    on.orthogonalize_(model)
    assert list(on.orthogonality_error(model)) == ["0.weight", "2.weight", "4.weight"]


def test_what_the_conversion_refuses_stands_in_the_plan():
    model = nn.Sequential(nn.Linear(6, 6), nn.Bilinear(3, 3, 3), nn.LayerNorm(6), nn.Linear(6, 3))
    plan = on.conversion_plan(model, None, lambda module, _: module is not model)
    assert [(weight.name, weight.layer) for weight in plan.refused] == [("1", "Bilinear"), ("2", "LayerNorm")]
    assert plan.refused[0].operations == 0
    assert "2 of 5 weights are refused" in str(plan)
    assert "are converted" not in str(plan)


def test_the_plan_of_a_cell_says_how_to_unroll_it():
    model = nn.Sequential(nn.GRUCell(4, 8), nn.Linear(8, 8), nn.Linear(8, 2))
    cell = on.conversion_plan(model, None, lambda module, _: isinstance(module, nn.GRUCell))
    assert "orthonorm.cached" in str(cell)
    assert "orthonorm.cached" not in str(on.conversion_plan(model))
    assert "input_weights=True" in why(cell, "0.weight_ih")
    assert "filter_fn and input_weights=True" in why(on.conversion_plan(model), "0.weight_ih")


class Experts(nn.Module):
    """A mixture of experts that keeps their matrices in one parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(4, 6, 6))
        self.gate = nn.Parameter(torch.randn(4, 6))


def test_parameters_that_no_rule_knows_are_listed_and_left():
    plan = on.conversion_plan(nn.Sequential(Experts(), nn.Linear(6, 6), nn.Linear(6, 3)))
    assert "dimensions" in why(plan, "0.up")
    assert decisions(plan)["0.up"] == decisions(plan)["0.gate"] == "left"


def flops(n: int, d: int, options: dict[str, Any]) -> int:
    """The operations that torch counts for the products of a weight's transformation, forward and backward."""
    V = torch.randn(n, d, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        on.functional.orthonormalize(V, method="eigh", **options).sum().backward()
    return counter.get_total_flops()


def test_the_operations_grow_with_the_group_and_hold_the_products_that_torch_counts():
    model = nn.Sequential(nn.Linear(256, 128, bias=False), nn.Linear(128, 2))
    whole = on.conversion_plan(model)
    grouped = on.conversion_plan(model, on.OLMConfig(group_size=16))
    assert flops(128, 256, {}) <= whole.operations <= 2 * flops(128, 256, {}) + 24 * 128**3
    assert whole.operations == 10 * 128**2 * 256 + 24 * 128**3
    assert grouped.operations == 8 * (10 * 16**2 * 256 + 24 * 16**3)
    convolution = on.conversion_plan(nn.Sequential(nn.Conv2d(8, 8, 3, groups=4), nn.Linear(8, 4)))
    assert convolution.operations == 4 * (10 * 2**2 * 18 + 24 * 2**3)


def test_the_table_has_a_line_a_weight_and_the_totals():
    plan = on.conversion_plan(HeadsFirst())
    lines = str(plan).splitlines()
    assert [line.split()[0] for line in lines[2:7]] == [weight.name for weight in plan.weights]
    assert f"{plan.entries('converted'):,} of {plan.entries():,} entries" in str(plan)


def test_a_plan_on_the_meta_device_is_that_of_the_model():
    with torch.device("meta"):
        there = on.conversion_plan(HeadsFirst())
    assert there == on.conversion_plan(HeadsFirst())


def test_a_warning_of_the_conversion_comes_with_the_plan_too():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        on.conversion_plan(nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2)), on.OLMConfig(), lambda _, name: name == "0")
    assert len(caught) == 1


def test_blocks_of_q_k_and_v_are_orthonormal_each():
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(12, 36)
            self.proj = nn.Linear(12, 12)

    model: Any = nn.Sequential(Attention(), nn.Linear(12, 2))
    on.orthogonalize_(model, on.OLMConfig(group_size=9, center=False))
    for block in model[0].qkv.weight.detach().chunk(3):
        assert error_of_rows(block, (6, 6)) < 1e-5


def test_a_plan_says_that_a_shared_tensor_is_orthogonal_elsewhere():
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2))
    model[1].weight = model[0].weight
    on.orthogonal_weight_norm(model[0])
    assert [row.why for row in on.conversion_plan(model).left if row.name == "1.weight"] == [
        "shares its tensor with 0.weight, which is orthogonal already; tied to 0.weight"
    ]
