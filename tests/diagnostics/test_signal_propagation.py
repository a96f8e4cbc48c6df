"""`signal_propagation` against Theorem 1 of the paper, and against derivatives taken by hand."""

import copy
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from orthogonal_layers import weight

SIGMA = 1.5


def white(samples: int, d: int) -> Tensor:
    """A batch whose mean is exactly zero and whose covariance is exactly sigma^2 I."""
    seed = torch.cat([torch.ones(samples, 1), torch.randn(samples, d)], 1).double()
    return SIGMA * math.sqrt(samples - 1) * torch.linalg.qr(seed)[0][:, 1:]


def linear(d: int, n: int, **options: Any) -> on.OrthogonalLinear:
    return on.OrthogonalLinear(d, n, bias=False, dtype=torch.float64, **options)


def test_the_result_is_a_list_that_prints_as_a_table():
    x = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-2.0, 0.0], [0.0, -2.0]])
    model: Any = nn.Sequential(nn.Linear(2, 2), nn.Flatten(), nn.Linear(2, 1, bias=False))
    model[0].load_state_dict({"weight": torch.diag(torch.tensor([2.0, 1.0])), "bias": torch.ones(2)})
    model[2].load_state_dict({"weight": torch.tensor([[0.0, 3.0]])})
    signals = on.signal_propagation(model, x, gradient=torch.ones(4, 1))
    # Layer 0: s = (2 x_1 + 1, x_2 + 1) of variances 4 * 8/3 and 8/3, gradient (0, 3) to (0, 3).
    # Layer 2: |3 s_2| over |s|, 3 * sqrt(12) / sqrt(48); variance 9 * 8/3.
    assert str(signals).splitlines()[:4] == [
        "layer  mean(s)  cov(s)        |s|/|x|  |dL/dx|/|dL/ds|",
        "-----  -------  ------------  -------  ---------------",
        "0      1        2.67 to 10.7  1.58     1",
        "2      3        24 to 24      1.5      3",
    ]
    assert signals == list(signals)
    assert repr(signals) == repr(list(signals))


@pytest.mark.parametrize("options", [{"center": True}, {}], ids=["centred", "uncentred"])
def test_theorem_1_1_a_white_batch_stays_white(options: dict[str, Any]):
    (signal,) = on.signal_propagation(linear(12, 8, **options), white(100, 12))
    torch.testing.assert_close(signal.covariance, torch.full((8,), SIGMA**2).double())
    assert signal.mean == pytest.approx(0.0, abs=1e-12)


def test_theorem_1_2_a_square_uncentred_layer_keeps_the_norm():
    x = torch.randn(50, 9, dtype=torch.float64)
    (signal,) = on.signal_propagation(linear(9, 9, center=False), x)
    assert signal.forward_ratio == pytest.approx(1.0, abs=1e-12)
    (wide,) = on.signal_propagation(linear(9, 6, center=False), x)
    assert 0.5 < wide.forward_ratio < 0.95  # n < d: what lies outside the rows is lost


@pytest.mark.parametrize("options", [{"center": True}, {}], ids=["centred", "uncentred"])
@pytest.mark.parametrize("n", [1, 5, 8])
def test_theorem_1_3_the_gradients_norm_is_kept(n: int, options: dict[str, Any]):
    x = torch.randn(20, 9, dtype=torch.float64)
    (signal,) = on.signal_propagation(linear(9, n, **options), x)
    assert signal.gradient_ratio == pytest.approx(1.0, abs=1e-12)


def test_centring_removes_the_mean_direction_of_the_input():
    layer, x = linear(9, 6, center=True), torch.randn(20, 9, dtype=torch.float64)
    (signal,), (shifted,) = on.signal_propagation(layer, x), on.signal_propagation(layer, x + 100.0)
    assert shifted.mean == pytest.approx(signal.mean, rel=1e-9)
    torch.testing.assert_close(shifted.covariance, signal.covariance, rtol=1e-8, atol=1e-10)
    assert shifted.forward_ratio < 0.01
    (uncentred,) = on.signal_propagation(linear(9, 6), x + 100.0)
    assert uncentred.mean > 1.0


def test_of_several_groups_only_the_diagonal_blocks_stay_white():
    layer, x = linear(9, 12, group_size=4), white(100, 9)
    W = weight(layer).detach().numpy()
    values = np.linalg.svd(W, compute_uv=False)
    assert 1.4 < values[0] <= math.sqrt(3)  # errata 6: 1.6; three groups of orthonormal rows reach sqrt(3) at most
    (signal,) = on.signal_propagation(layer, x)
    np.testing.assert_allclose(signal.covariance.numpy(), SIGMA**2 * _padded(values, 12) ** 2, atol=1e-10)
    covariance = torch.cov(layer(x).detach().T)
    for k in range(3):
        block = covariance[4 * k : 4 * k + 4, 4 * k : 4 * k + 4]
        torch.testing.assert_close(block, SIGMA**2 * torch.eye(4).double())
    assert covariance[:4, 4:].abs().max() > 0.1 * SIGMA**2


def _padded(values: np.ndarray, n: int) -> np.ndarray:
    return np.concatenate([values, np.zeros(n - len(values))])


def test_of_several_groups_the_gradients_norm_is_kept_on_average_only():
    layer, x = linear(9, 12, group_size=4), torch.randn(20, 9, dtype=torch.float64)
    U, values, _ = np.linalg.svd(weight(layer).detach().numpy())
    gradient = torch.randn(20, 12, dtype=torch.float64)
    (signal,) = on.signal_propagation(layer, x, gradient=gradient)
    expected = np.linalg.norm(gradient.numpy() @ weight(layer).detach().numpy()) / np.linalg.norm(gradient.numpy())
    assert signal.gradient_ratio == pytest.approx(expected, rel=1e-12)
    (top,) = on.signal_propagation(layer, x, gradient=torch.from_numpy(np.tile(U[:, 0], (20, 1))))
    assert top.gradient_ratio == pytest.approx(values[0], rel=1e-10)
    assert top.gradient_ratio > 1.4
    many = torch.randn(20_000, 12, dtype=torch.float64)
    (mean,) = on.signal_propagation(layer, torch.randn(20_000, 9, dtype=torch.float64), gradient=many)
    assert mean.gradient_ratio == pytest.approx(1.0, abs=0.01)


def by_hand(model: Any, layer: Any, inputs: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x, s, dL/dx through the layer alone, and dL/ds, from a model without in-place operations."""
    kept: dict[str, Tensor] = {}

    def keep(_: nn.Module, args: tuple[Tensor, ...], s: Tensor) -> None:
        kept["x"], kept["s"] = args[0], s

    handle = layer.register_forward_hook(keep)
    output = model(inputs.requires_grad_())
    handle.remove()
    (at_s,) = torch.autograd.grad(output, kept["s"], gradient, retain_graph=True)
    (at_x,) = torch.autograd.grad(kept["s"], kept["x"], at_s, retain_graph=True)
    inputs.requires_grad_(False)
    return kept["x"].detach(), kept["s"].detach(), at_x, at_s


def convolutional(inplace: bool) -> nn.Sequential:
    return nn.Sequential(
        on.OrthogonalConv2d(3, 8, 3, stride=2, padding=1, dtype=torch.float64),
        nn.ReLU(inplace=inplace),
        on.OrthogonalConvTranspose2d(8, 4, 3, groups=2, dtype=torch.float64),
        nn.ReLU(inplace=inplace),
        nn.Flatten(),
        nn.Linear(4 * 5 * 5, 6, dtype=torch.float64),
    )


@pytest.mark.parametrize("index", [0, 2, 5])
@pytest.mark.parametrize("inplace", [False, True])
def test_every_number_is_the_one_computed_by_hand(index: int, inplace: bool):
    model = convolutional(inplace)
    plain = convolutional(False)
    plain.load_state_dict(model.state_dict())
    inputs, gradient = torch.randn(4, 3, 5, 5).double(), torch.randn(4, 6).double()
    signals = on.signal_propagation(model, inputs, gradient=gradient)
    assert [signal.layer for signal in signals] == ["0", "2", "5"]
    signal = signals[[0, 2, 5].index(index)]
    x, s, at_x, at_s = by_hand(plain, plain[index], inputs, gradient)
    channels = np.moveaxis(s.numpy(), 1, -1).reshape(-1, s.shape[1])
    assert signal.mean == pytest.approx(np.sqrt(np.mean(channels.mean(0) ** 2)), rel=1e-10)
    values = np.linalg.eigvalsh(np.cov(channels.T))[::-1]
    np.testing.assert_allclose(signal.covariance.numpy(), values, rtol=1e-8, atol=1e-12)
    bias: Any = plain[index].bias
    unbiased = channels - bias.detach().numpy()
    assert signal.forward_ratio == pytest.approx(float(np.linalg.norm(unbiased)) / float(x.norm()), rel=1e-10)
    assert signal.gradient_ratio == pytest.approx(float(at_x.norm() / at_s.norm()), rel=1e-10)


class Residual(nn.Module):
    def __init__(self, inplace: bool) -> None:
        super().__init__()
        self.first, self.second = linear(8, 7), linear(7, 7)
        self.out = linear(7, 7)
        self.relu = nn.ReLU(inplace=inplace)

    def forward(self, x: Tensor) -> Tensor:
        h = self.relu(self.first(x))
        h = h + self.relu(self.second(h))
        return self.out(h)


def test_a_shortcut_is_not_the_layers():
    model = Residual(inplace=True)
    signals = on.signal_propagation(model, torch.randn(20, 8).double())
    assert [signal.layer for signal in signals] == ["first", "second", "out"]
    # `first` has one group of 7 rows: Theorem 1 (3), though its output feeds two paths.
    assert signals[0].gradient_ratio == pytest.approx(1.0, abs=1e-12)
    inputs, gradient = torch.randn(20, 8).double(), torch.randn(20, 7).double()
    plain = Residual(inplace=False)
    plain.load_state_dict(model.state_dict())
    _, _, at_x, at_s = by_hand(plain, plain.second, inputs, gradient)
    signal = on.signal_propagation(model, inputs, gradient=gradient)[1]
    assert signal.gradient_ratio == pytest.approx(float(at_x.norm() / at_s.norm()), rel=1e-10)


def test_a_layer_called_twice_has_two_entries():
    layer = linear(9, 9, center=False)
    signals = on.signal_propagation(nn.Sequential(layer, nn.Tanh(), layer), torch.randn(20, 9).double())
    assert [signal.layer for signal in signals] == ["0", "0"]
    assert [signal.forward_ratio for signal in signals] == pytest.approx([1.0, 1.0], abs=1e-12)
    assert signals[0].mean != signals[1].mean


class Odd(nn.Module):
    """Layers that no gradient reaches, or that are given something else than the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.constant, self.frozen, self.unused, self.named = linear(4, 3), linear(4, 3), linear(4, 3), linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.unused(x)
        with torch.no_grad():
            frozen = self.frozen(x)
        return self.constant(torch.arange(4.0).double()) + frozen + self.named(input=x)


def test_layers_that_no_gradient_reaches_are_reported_as_such():
    x = torch.randn(10, 4).double()
    signals = {signal.layer: signal for signal in on.signal_propagation(Odd(), x)}
    assert list(signals) == ["unused", "frozen", "constant", "named"]
    assert [math.isnan(signal.gradient_ratio) for signal in signals.values()] == [True, True, True, False]
    assert signals["named"].gradient_ratio == pytest.approx(1.0, abs=1e-12)
    assert torch.equal(signals["constant"].covariance, torch.zeros(3).double())  # one vector does not vary
    assert all(torch.isfinite(signal.covariance).all() for signal in signals.values())


def test_tokens_are_a_batch_too():
    model = nn.Sequential(nn.Embedding(20, 8), on.OrthogonalLinear(8, 7))
    (signal,) = on.signal_propagation(model, torch.randint(20, (5, 6)))
    assert signal.gradient_ratio == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_and_the_random_state_stay_as_they_were(training: bool):
    model = nn.Sequential(linear(8, 7), nn.Dropout(0.5), nn.ReLU(inplace=True), linear(7, 7)).train(training)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    x, random = torch.randn(10, 8).double(), torch.get_rng_state()
    start = x.clone()
    first, second = (on.signal_propagation(model, x) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), random)
    assert [signal.gradient_ratio for signal in first] == [signal.gradient_ratio for signal in second]
    assert torch.equal(x, start)
    assert not x.requires_grad
    assert model.training is training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())


def test_hooks_go_when_the_model_raises():
    model = nn.Sequential(linear(8, 7), linear(8, 7))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        on.signal_propagation(model, torch.randn(10, 8).double())
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())


def test_it_works_where_gradients_are_switched_off():
    with torch.no_grad():
        (signal,) = on.signal_propagation(linear(8, 7), torch.randn(10, 8).double())
    assert signal.gradient_ratio == pytest.approx(1.0, abs=1e-12)


def test_it_works_whatever_the_default_device():
    model, x = nn.Sequential(linear(6, 5), nn.Tanh(), linear(5, 3)), torch.randn(4, 6).double()
    expected = [signal.gradient_ratio for signal in on.signal_propagation(model, x)]
    with torch.device("meta"):
        assert [signal.gradient_ratio for signal in on.signal_propagation(model, x)] == expected


def test_it_works_in_inference_mode():
    model, x, gradient = linear(8, 7), torch.randn(10, 8).double(), torch.randn(10, 7).double()
    (expected,) = on.signal_propagation(model, x, gradient=gradient)
    with torch.inference_mode():
        (signal,) = on.signal_propagation(model, 1 * x, gradient=1 * gradient)
    assert signal.gradient_ratio == expected.gradient_ratio == pytest.approx(1.0, abs=1e-12)
    assert signal.forward_ratio == expected.forward_ratio


@pytest.mark.nightly
@pytest.mark.compiled
@pytest.mark.parametrize("method", [False, True], ids=["torch.compile", "module.compile"])
def test_a_compiled_model_that_has_run_has_the_signals_of_the_model(method: bool):
    plain = nn.Sequential(on.OrthogonalLinear(8, 7), nn.ReLU(), nn.Linear(7, 3))
    x = torch.randn(5, 8)
    expected = on.signal_propagation(plain, x)
    model: Any = plain if method else torch.compile(plain, backend="aot_eager")
    if method:
        plain.compile(backend="aot_eager")
    before = model(x.clone().requires_grad_())
    found = on.signal_propagation(model, x)
    assert [signal.layer for signal in found] == ["0", "2"]
    for signal, other in zip(found, expected, strict=True):
        assert signal.gradient_ratio == other.gradient_ratio
        assert torch.equal(signal.covariance, other.covariance)
    assert torch.equal(model(x.clone().requires_grad_()), before)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"y": self.layer(x)}


@torch.inference_mode()
def built_in_inference_mode() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 3))


def test_a_copy_of_a_model_built_in_inference_mode_has_signals():
    assert len(on.signal_propagation(copy.deepcopy(built_in_inference_mode()), torch.randn(5, 4))) == 1


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no layer": (
        lambda: on.signal_propagation(nn.ReLU(), torch.ones(2, 4)),
        ValueError,
        r"this ReLU has no Linear or convolution layer",
    ),
    "one sample": (
        lambda: on.signal_propagation(nn.Linear(4, 3), torch.ones(1, 4)),
        ValueError,
        r"batch of at least 2 samples; got the shape \(1, 4\)",
    ),
    "a vector": (
        lambda: on.signal_propagation(nn.Linear(4, 3), torch.ones(4)),
        ValueError,
        r"batch of at least 2 samples; got the shape \(4,\)",
    ),
    "a gradient of another shape": (
        lambda: on.signal_propagation(nn.Linear(4, 3), torch.ones(2, 4), gradient=torch.ones(2, 4)),
        ValueError,
        r"gradient must have the shape of the model's output, \(2, 3\); got \(2, 4\)",
    ),
    "built in inference mode": (
        lambda: on.signal_propagation(built_in_inference_mode(), torch.ones(2, 4)),
        ValueError,
        r"0\.weight was made in torch\.inference_mode.*copy\.deepcopy",
    ),
    "no tensor returned": (
        lambda: on.signal_propagation(Pair(), torch.ones(2, 4)),
        TypeError,
        r"the model must return a tensor; got dict",
    ),
    "not a module": (
        lambda: on.signal_propagation("model", torch.ones(2, 4)),  # type: ignore[arg-type]
        TypeError,
        r"model must be a torch\.nn\.Module; got str",
    ),
    "a dictionary": (
        lambda: on.signal_propagation(nn.Linear(4, 3), {"x": torch.ones(2, 4)}),  # type: ignore[arg-type]
        TypeError,
        r"inputs must be a tensor, samples first; got dict",
    ),
}


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize(("call", "exception", "message"), WRONG.values(), ids=WRONG)
def test_wrong_inputs_are_refused(call: Callable[[], Any], exception: type[Exception], message: str):
    with pytest.raises(exception, match=message):
        call()
