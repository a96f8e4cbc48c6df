"""What users reported of other libraries in public issue threads, as scenarios for this one.

Each test names the thread. They are of the kinds of the cases 12, 13, 16 and 26: something else than our own functions
saves, swaps, differentiates or reads a computed weight.
"""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

import orthonorm as on
from orthogonal_layers import free, polar, weight


def network() -> Any:
    torch.manual_seed(0)
    return on.orthogonalize_(nn.Sequential(nn.Linear(12, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3)))


def loss_of(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).square().mean()


def train(model: nn.Module, steps: int) -> None:
    optimizer = torch.optim.SGD(on.param_groups(model), lr=0.5)
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(model, torch.randn(16, 12, generator=generator)).backward()
        optimizer.step()


def test_a_checkpoint_of_the_computed_weight_alone_goes_on_orthogonal():
    """stanfordnlp/pyreft #179: only W was saved, and the first step after the loading left the manifold."""
    trained = network()
    train(trained, 5)
    saved = {"0.weight": weight(trained[0]).detach().clone(), "0.bias": trained[0].bias.detach().clone()}
    model = network()
    model.load_state_dict(saved, strict=False)
    torch.testing.assert_close(weight(model[0]), saved["0.weight"], rtol=0, atol=1e-5)
    train(model, 1)
    assert on.orthogonality_error(model)["0.weight"] < 1e-5
    assert torch.dist(weight(model[0]), saved["0.weight"]) > 1e-4


def test_gradients_of_each_sample_are_those_of_a_loop():
    """meta-pytorch/opacus #646: per-sample gradients of a parametrized layer."""
    model = network().double()
    x = torch.randn(5, 12, dtype=torch.float64)
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(values: dict[str, Tensor], sample: Tensor) -> Tensor:
        return functional_call(model, values, (sample.unsqueeze(0),)).square().mean()

    each = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for i, sample in enumerate(x):
        model.zero_grad()
        loss_of(model, sample.unsqueeze(0)).backward()
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(each[name][i], parameter.grad)


class FakeQuantized(nn.Linear):
    """A layer that rounds its weight in the forward, with a gradient that goes straight through."""

    def forward(self, input: Tensor) -> Tensor:
        W = self.weight
        rounded = W + ((W * 64).round() / 64 - W).detach()
        return nn.functional.linear(input, rounded, self.bias)


def test_a_layer_that_quantizes_the_weight_it_reads_quantizes_the_orthogonal_one():
    """Xilinx/brevitas #1123: a weight that is processed before it is quantized."""
    layer: Any = FakeQuantized(12, 8)
    plain = layer.weight.detach().clone()
    on.orthogonal_weight_norm(layer)
    W = polar(plain.double(), center=False)
    x = torch.randn(4, 12)
    torch.testing.assert_close(layer(x), x @ ((W * 64).round() / 64).float().T + layer.bias, rtol=0, atol=1e-5)
    layer(x).sum().backward()
    grad_of_v = free(layer).grad
    assert grad_of_v is not None
    assert float(grad_of_v.norm()) > 0


def test_a_tied_weight_is_the_last_one_that_a_checkpoint_brings():
    """pytorch/pytorch #62264: two keys of one tensor with different values."""

    def tied() -> Any:
        model = nn.ModuleDict({"first": nn.Linear(8, 8), "second": nn.Linear(8, 8)})
        model["second"].weight = model["first"].weight
        return model

    plain = nn.ModuleDict({"first": nn.Linear(8, 8), "second": nn.Linear(8, 8)})
    expected: Any = tied()
    expected.load_state_dict(plain.state_dict())
    model: Any = on.orthogonalize_(tied(), filter_fn=lambda module, _: isinstance(module, nn.Linear))
    model.load_state_dict(plain.state_dict())
    W = polar(expected["first"].weight.detach().double(), center=False).float()
    for name in ("first", "second"):
        torch.testing.assert_close(weight(model[name]).detach(), W, rtol=0, atol=1e-5)


@pytest.mark.compiled
@pytest.mark.parametrize("change", ["load", "swap", "renormalize", "assign"])
def test_a_compiled_model_computes_with_the_weights_as_they_are_now(change: str):
    """pytorch/pytorch #120958 and wandb/senpai #3303: weights exchanged after compilation, as for an average (EMA)."""
    model, other = network(), network()
    train(other, 5)
    compiled = torch.compile(model)
    x = torch.randn(4, 12)
    with torch.no_grad():
        compiled(x)
    expected = copy.deepcopy(other)
    if change == "load":
        model.load_state_dict(other.state_dict())
    elif change == "swap":
        for own, average in zip(model.parameters(), other.parameters(), strict=True):
            own.data, average.data = average.data, own.data
    elif change == "renormalize":
        model.load_state_dict(other.state_dict())
        on.renormalize_(model, norm=3.0)
    else:
        for i in (0, 2):
            model[i].weight, model[i].bias = weight(other[i]).detach(), other[i].bias
        model[4].load_state_dict(other[4].state_dict())
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), expected(x), rtol=0, atol=1e-5)
    train(compiled, 2)
    assert max(on.orthogonality_error(model).values()) < 3e-5
