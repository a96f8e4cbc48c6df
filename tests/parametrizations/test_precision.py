"""Half precision, autocast, gradient scaling, memory formats and devices without data: on the layers and on a model."""

from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on

EPS = {torch.bfloat16: 2**-8, torch.float16: 2**-11}
"""Half the distance of 1 to the next number: the largest relative error of a rounding."""


def everything(module: nn.Module, fqn: str) -> bool:
    return fqn != ""


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "linear": lambda: nn.Linear(48, 24),
    "convolution": lambda: nn.Conv2d(6, 16, 3),
    "transposed": lambda: nn.ConvTranspose2d(6, 8, 3, groups=2),
    "LSTM": lambda: nn.LSTM(8, 16),
    "attention": lambda: nn.MultiheadAttention(16, 2),
    "embedding": lambda: nn.Embedding(20, 12, padding_idx=0),
}


@pytest.mark.parametrize("dtype", EPS, ids=str)
@pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS)
def test_the_error_of_a_half_precision_layer_is_its_types_own(make: Callable[[], nn.Module], dtype: torch.dtype):
    torch.manual_seed(0)
    layer = nn.Sequential(make()).to(dtype)
    exact = nn.Sequential(make()).double()
    exact.load_state_dict({key: value.double() for key, value in layer.state_dict().items()})
    for model in (layer, exact):
        on.orthogonalize_(model, None, everything)
    for key, error in on.orthogonality_error(layer).items():
        owner, name = layer.get_submodule(key.rpartition(".")[0]), key.rpartition(".")[2]
        W, reference = getattr(owner, name), getattr(exact.get_submodule(key.rpartition(".")[0]), name)
        assert W.dtype == dtype
        # Each entry of W is the exact one rounded once ...
        W, reference = W.detach(), reference.detach()
        assert float((W.double() - reference).abs().max()) <= EPS[dtype] * float(reference.abs().max()) * 1.01
        # ... and |W W^T - I| is what that rounding leaves: at most 2 eps |w_i| |w_j| by Cauchy and Schwarz.
        assert error <= 2.1 * EPS[dtype]


@pytest.mark.parametrize("dtype", EPS, ids=str)
def test_a_half_precision_layer_trains(dtype: torch.dtype):
    layer = on.orthogonalize_(nn.Sequential(nn.Linear(16, 8)).to(dtype), on.OLMConfig(scale=True), everything)
    layer(torch.randn(4, 16, dtype=dtype)).float().square().sum().backward()
    assert all(
        p.grad is not None and torch.isfinite(p.grad).all() and p.grad.dtype == dtype for p in layer.parameters()
    )


def small_model() -> nn.Module:
    torch.manual_seed(0)
    parts = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 10), nn.Tanh(), nn.Linear(10, 3)]
    return on.orthogonalize_(nn.Sequential(*parts), on.OLMConfig(group_size=8))


def test_masters_in_float32_are_exact_under_autocast():
    model = small_model()
    x = torch.randn(4, 3, 4, 4)
    outside = model[0].weight  # type: ignore[index]
    with torch.autocast("cpu", torch.bfloat16):
        inside = model[0].weight  # type: ignore[index]
        output = model(x)
    assert output.dtype == torch.bfloat16
    assert inside.dtype == torch.float32
    assert torch.equal(inside, outside)
    output.float().square().sum().backward()
    got = model[0].parametrizations.weight.original.grad  # type: ignore[index]
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(x).float().square().sum()
        model.zero_grad()
        loss.backward()  # inside the region, too, the adjoint is computed in full precision
    again = model[0].parametrizations.weight.original.grad  # type: ignore[index]
    assert torch.equal(got, again)
    assert max(on.orthogonality_error(model).values()) < 1e-6


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step:UserWarning")
def test_a_gradient_scaler_skips_an_overflow_and_steps_after_it():
    model = small_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    x = torch.randn(4, 3, 4, 4)
    before = [p.detach().clone() for p in model.parameters()]
    for step, factor in enumerate((float("inf"), 1.0)):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            loss = model(x).float().square().mean() * factor
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        same = [torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True)]
        assert all(same) if step == 0 else not any(same)
    assert scaler.get_scale() == 2.0**7
    assert max(on.orthogonality_error(model).values()) < 1e-5


@pytest.mark.parametrize(("layer", "memory_format"), [
    pytest.param(nn.Conv2d(8, 16, 3, padding=1), torch.channels_last, id="images"),
    pytest.param(nn.Conv3d(4, 6, 3, padding=1), torch.channels_last_3d, id="volumes"),
    pytest.param(nn.ConvTranspose2d(8, 6, 3), torch.channels_last, id="transposed"),
])  # fmt: skip
def test_channels_last_is_kept(layer: Any, memory_format: torch.memory_format):
    shape = (2, layer.in_channels, *[5] * (layer.weight.ndim - 2))  # type: ignore[union-attr, operator, misc]
    x = torch.randn(*shape)  # type: ignore[arg-type]
    layer = cast(Any, nn.Sequential(layer))
    on.orthogonalize_(layer)
    expected = layer(x)
    layer.to(memory_format=memory_format)  # type: ignore[call-overload]
    V = layer[0].parametrizations.weight.original  # type: ignore[index, union-attr]
    output = layer(x.contiguous(memory_format=memory_format))
    output.sum().backward()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
    optimizer.step()
    assert V.is_contiguous(memory_format=memory_format)
    assert output.is_contiguous(memory_format=memory_format)
    torch.testing.assert_close(output, expected, rtol=1e-5, atol=1e-6)
    assert on.fold_(layer)[0].weight.is_contiguous(memory_format=memory_format)  # type: ignore[index]


def test_a_model_is_made_and_converted_without_data_and_started_later():
    with torch.device("meta"):
        parts = [nn.Linear(8, 6), nn.LSTM(6, 6), nn.Conv2d(3, 4, 3), nn.ConvTranspose1d(4, 4, 3), nn.Embedding(5, 4)]
        model: Any = nn.ModuleList(parts)
    on.orthogonalize_(model, on.OLMConfig(scale=True), everything)
    assert all(p.is_meta for p in model.parameters())
    model.to_empty(device="cpu")
    for layer in model:
        layer.reset_parameters()
    assert set(on.orthogonality_error(model)) == {f"{i}.weight" for i in (0, 2, 3, 4)} | {"1.weight_hh_l0"}
    assert max(on.orthogonality_error(model).values()) < 1e-6
    V = model[0].parametrizations.weight.original
    assert float(V.detach().abs().max()) <= 8**-0.5
    torch.testing.assert_close(model[0].weight.norm(dim=1), V.norm(dim=1))
    assert model[1](torch.randn(3, 2, 6))[0].shape == (3, 2, 6)


def test_a_checkpoint_loads_into_a_model_without_data_by_assignment():
    source = small_model()
    with torch.device("meta"):
        model = small_model()
    model.load_state_dict(source.state_dict(), assign=True)
    x = torch.randn(2, 3, 4, 4)
    assert torch.equal(model(x), source(x))


def test_assigning_the_weight_of_a_converted_layer_works():
    for make, name in (
        (lambda: nn.LSTM(5, 6), "weight_hh_l0"),
        (lambda: nn.MultiheadAttention(6, 2), "in_proj_weight"),
    ):
        layer = on.orthogonalize_(make(), on.OLMConfig(scale=True, center=False), lambda _, fqn: fqn == "")
        X: Tensor = torch.randn_like(getattr(layer, name))
        setattr(layer, name, X)
        torch.testing.assert_close(getattr(layer, name).norm(dim=1), X.norm(dim=1))
        block = len(X) // (len(X) // 6)
        U, _, Vt = torch.linalg.svd(X[:block].double())
        expected = (U @ Vt).float() * X[:block].norm(dim=1, keepdim=True)
        torch.testing.assert_close(getattr(layer, name)[:block].detach(), expected, rtol=0, atol=1e-5)
