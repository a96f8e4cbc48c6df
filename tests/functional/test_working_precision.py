"""A device without float64, which is forced on a CPU here; and `meta`, where nothing is computed."""

import importlib
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import oracle
from orthonorm.functional import _precision as rules
from orthonorm.functional import inverse_sqrt, orthonormalize
from orthonorm.functional._orthogonality import orthogonality_errors
from spectra import SPECTRA, matrix

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


@pytest.fixture
def float32_only(monkeypatch: pytest.MonkeyPatch):
    """The library as on a device without float64."""
    for name in ("_precision", "_transformation", "_inverse_sqrt"):
        module = importlib.import_module(f"orthonorm.functional.{name}")
        monkeypatch.setattr(module, "working_dtype", lambda *_: torch.float32)


def derivatives(function: Any, X: Tensor, *, lowered: bool) -> list[Tensor]:
    """The value, its derivative in a direction and a gradient, all under autocast or not; then a second derivative."""
    X = X.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16, enabled=lowered):
        Y = function(X)
        G = torch.linspace(-1, 2, Y.numel()).reshape(Y.shape)
        (first,) = torch.autograd.grad(Y, X, G, create_graph=True)
        tangent = torch.func.jvp(function, (X.detach(),), (torch.ones_like(X),))[1]
    (second,) = torch.autograd.grad(first.square().sum(), X)
    return [Y.detach(), tangent, first.detach(), second]


@pytest.mark.usefixtures("float32_only")
@pytest.mark.parametrize("function", [orthonormalize, inverse_sqrt])
def test_autocast_changes_nothing_where_the_map_is_computed_in_float32(function: Any, method: str):
    A = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    X = A if function is orthonormalize else A @ A.T
    plain, lowered = (derivatives(partial(function, method=method), X, lowered=lowered) for lowered in (False, True))
    for a, b in zip(plain, lowered, strict=True):
        assert b.dtype == torch.float32
        torch.testing.assert_close(b, a, rtol=0, atol=1e-4 * float(a.abs().max()))


@pytest.mark.usefixtures("float32_only")
@pytest.mark.parametrize(("condition", "bound"), [(10.0, 1e-5), (100.0, 2e-4), (1e3, 3e-3)])
@pytest.mark.parametrize("name", SPECTRA)
def test_without_float64_the_weight_is_that_of_two_passes(name: str, condition: float, bound: float, method: str):
    V = matrix(SPECTRA[name](64, condition), 96).float()
    W = orthonormalize(V, method=method)
    assert orthogonality_errors(W).max() <= 3e-5
    expected = oracle.polar_factor(V.double() - V.double().mean(1, keepdim=True))
    assert 1e-9 < (W.double() - expected).norm() / 8 <= bound
    assert torch.equal(W, orthonormalize(V, method="newton"))


def test_a_gradient_on_meta_has_the_shape_of_the_weight():
    V = torch.empty(6, 9, device="meta", requires_grad=True)
    (gradient,) = torch.autograd.grad(orthonormalize(V).sum(), V)
    assert gradient.is_meta
    assert gradient.shape == V.shape


def test_a_diagnostic_is_in_float64_on_the_cpu_where_the_device_has_none(monkeypatch: pytest.MonkeyPatch):
    X = torch.ones(2, 3)
    assert rules.in_float64(X).dtype == torch.float64
    monkeypatch.setattr(rules, "working_dtype", lambda *_: torch.float32)
    assert rules.in_float64(X).dtype == torch.float64
    assert rules.in_float64(X).device.type == "cpu"
