"""The gradient of a computed weight: asked for, hooked, switched off and on."""

import warnings

import torch

import oracle
import orthonorm as on
from orthogonal_layers import free
from surgery.rows import Row, affected, assert_right, layer_of

__all__ = ["READINGS"]


def frozen_by_the_weight() -> None:
    layer = layer_of()
    layer.requires_grad_(False)
    layer.weight.requires_grad_(True)
    assert not free(layer).requires_grad
    layer.requires_grad_(True)
    assert_right(layer)


def read_gradient() -> None:
    layer = layer_of(None)
    x = torch.randn(3, 8).double()
    layer(x).sum().backward()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert layer.weight.grad is None
    expected = oracle.gradient_of_polar(free(layer).detach(), torch.ones(3, 4).double().T @ x, center=False)
    torch.testing.assert_close(free(layer).grad, expected, rtol=0, atol=1e-9)


def hooked() -> None:
    layer, seen = layer_of(), []
    layer.weight.register_hook(seen.append)
    layer(torch.randn(3, 8).double()).sum().backward()
    assert seen == []
    with on.cached(layer):
        layer.weight.register_hook(seen.append)
        layer(torch.randn(3, 8).double()).sum().backward()
    assert [tuple(gradient.shape) for gradient in seen] == [(4, 8)]


def asked(layer: torch.nn.Module) -> None:
    torch.autograd.grad(layer(torch.randn(3, 8).double()).sum(), layer.weight)  # type: ignore[arg-type]


def asked_inside_cached() -> None:
    layer, x = layer_of(), torch.randn(3, 8).double()
    with on.cached(layer):
        (gradient,) = torch.autograd.grad(layer(x).sum(), layer.weight)
    torch.testing.assert_close(gradient, torch.ones(3, 4).double().T @ x)
    assert len(affected(layer)) == 2


INSIDE = "do it inside `with orthonorm.cached(model):`"
READINGS = (
    Row(
        "`layer.weight.requires_grad_(True)` on a frozen layer",
        "nothing comes of it: `layer.weight` is a result",
        frozen_by_the_weight,
        cure="`layer.requires_grad_()`",
    ),
    Row(
        "`layer.weight.grad`",
        "is None, as of every result",
        read_gradient,
        cure="`layer.parametrizations.weight.original.grad`",
    ),
    Row(
        "`layer.weight.register_hook(f)`",
        "`f` is not called: each read computes another tensor",
        hooked,
        cure=INSIDE,
    ),
    Row(
        "`torch.autograd.grad(loss, layer.weight)`",
        "",
        asked_inside_cached,
        asked,
        RuntimeError,
        ("to not have been used",),
        by="torch",
        cure=INSIDE,
    ),
)
