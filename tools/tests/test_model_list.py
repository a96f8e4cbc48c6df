"""Real architectures: the part of the model list that fits a test run, and the page that is written from all of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.layers import std_conv
from torch import nn

import model_list
import model_shares
import orthonorm as on
import what_works
from model_list_names import SUBSET, TIMM, TORCHVISION

DOCS = Path(__file__).parents[2] / "docs"
SHARES = json.loads((DOCS / "model_shares.json").read_text())
CASES = {f"{case.source}/{case.name}": case for case in model_list.cases()}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the libraries' own, and that a weight was completed, which `completed` counts
@pytest.mark.parametrize("name", SUBSET)
def test_an_architecture_converts_trains_and_folds(name: str):
    assert model_list.measure(CASES[name]).failures == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SUBSET)
def test_the_recorded_shares_are_those_of_the_plan_and_hide_no_layer(name: str):
    model = model_shares.make(CASES[name])
    recorded = {f"{m['source']}/{m['name']}": m for m in SHARES["models"]}[name]
    assert recorded == {"source": recorded["source"], "name": recorded["name"]} | model_shares.count(model)
    assert recorded["orthogonal"] + sum(recorded["left"].values()) == recorded["parameters"]
    linears = {
        f"{fqn}.weight" for fqn, m in model.named_modules() if isinstance(m, nn.Linear | nn.modules.conv._ConvNd)
    }
    named = ("output layer", "depthwise", "fewer than 3")
    assert all(w.why.startswith(named) for w in on.conversion_plan(model).left if w.name in linears)


def test_the_list_is_as_long_as_promised():
    assert len({name.rstrip("*") for name in TIMM}) >= 40
    assert len({name.rstrip("*") for name in TORCHVISION}) >= 10
    assert set(SUBSET) <= CASES.keys()


def test_the_page_is_written_from_the_results_and_all_of_them_pass():
    found = json.loads((DOCS / "model_list.json").read_text())
    for measured in (found, SHARES):
        assert {f"{model['source']}/{model['name']}" for model in measured["models"]} == CASES.keys()
    assert [model["name"] for model in found["models"] if model["failures"]] == []
    assert (DOCS / "what-works.md").read_text() == what_works.page(SHARES, found)


def test_a_share_is_rounded_so_that_nothing_is_hidden():
    assert [what_works.share(part, 10000) for part in (10000, 9999, 5907)] == ["100.0%", "99.9%", "59.0%"]
    assert [what_works.rest(part, 10000) for part in (0, 1, 4053)] == ["0.0%", "0.1%", "40.6%"]


@pytest.mark.parametrize("change", ["loss", "fold", "zero", "types", "error"])
def test_a_promise_that_is_not_kept_is_said(change: str):
    good = {
        "name": "x", "source": "y", "completed": 0, "losses": [2.0, 1.0], "error": 1e-7, "fold_difference": 1e-6,
        "output_size": 1.0, "kept_types": True, "seconds": 1.0,
    }  # fmt: skip
    worse = {
        "loss": {"losses": [1.0, 1.0]}, "fold": {"fold_difference": 2e-4},
        "zero": {"output_size": 0.0}, "types": {"kept_types": False}, "error": {"error": float("nan")},
    }  # fmt: skip
    assert model_list.Result(**good).failures == []
    assert len(model_list.Result(**(good | worse[change])).failures) == 1


# The row norm of the weight that each class convolves with: deviation 1 over 54 entries, or that times its gain.
STANDARDISED: dict[str, tuple[Callable[[], nn.Module], float]] = {
    "StdConv2d": (lambda: std_conv.StdConv2d(6, 8, 3, padding=1), 54**0.5),
    "StdConv2dSame": (lambda: std_conv.StdConv2dSame(6, 8, 3, stride=2), 54**0.5),
    "ScaledStdConv2d": (lambda: std_conv.ScaledStdConv2d(6, 8, 3, padding=1, gamma=1.7), 1.7),
}


@pytest.mark.parametrize(("make", "norm"), STANDARDISED.values(), ids=STANDARDISED)
def test_a_convolution_that_standardises_its_weight_goes_on_doing_so(make: Callable[[], nn.Module], norm: float):
    layer = make()
    kind = type(layer)
    on.orthogonal_weight_norm(layer, center=True)  # as the standardisation subtracts the mean of each row
    assert isinstance(layer, kind)
    x = torch.randn(2, 6, 8, 8)
    output = layer(x)
    seen: dict[str, torch.Tensor] = {}
    handle = nn.functional.conv2d

    def record(x: torch.Tensor, weight: torch.Tensor, *rest: Any) -> torch.Tensor:
        seen["weight"] = weight
        return handle(x, weight, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nn.functional, "conv2d", record)
        assert torch.equal(layer(x), output)
    used = seen["weight"].detach().flatten(1)
    directions = used / used.norm(dim=1, keepdim=True)
    torch.testing.assert_close(directions @ directions.mT, torch.eye(8), rtol=0, atol=1e-4)
    torch.testing.assert_close(used.norm(dim=1), torch.full((8,), norm), rtol=1e-3, atol=0)
    folded = on.fold(layer)
    assert type(folded) is kind
    assert torch.equal(folded(x), output)


def test_zero_initialised_branches_are_completed_and_named():
    model: Any = timm.create_model("resnet18", zero_init_last=True, num_classes=4)
    with torch.no_grad():
        model.layer1[0].conv2.weight.zero_()
    with pytest.warns(UserWarning, match=r"layer1\.0\.conv2\.weight .*\b64 of its 64"):
        on.orthogonalize_(model, on.OrthogonalConfig(group_size=32), lambda _, fqn: fqn == "layer1.0.conv2")
    assert max(on.orthogonality_error(model).values()) < 1e-5
