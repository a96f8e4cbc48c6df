"""Quantizing: while training it works, and afterwards it is for a folded model."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import orthonorm as on
from surgery.compressing import FOLD, OURS, TORCHS, deprecated
from surgery.rows import Row, affected, layer_of, weight_from

__all__ = ["QUANTIZATION"]


def quantized_in_training(scale: Any) -> Callable[[], None]:
    def check() -> None:
        quantization = torch.ao.quantization
        with deprecated():
            layer = layer_of(scale).float()
            model: Any = nn.Sequential(quantization.QuantStub(), layer, quantization.DeQuantStub()).train()
            x = torch.randn(64, 8)
            model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
            training = quantization.prepare_qat(model)
            for _ in range(3):
                training(x).sum().backward()
            twin = training[1]
            # V and g are those of the layer, and the step of an 8 bit weight is all that lies between.
            assert [type(value) for value in affected(twin)] == [nn.Parameter] * len(affected(layer))
            assert all(torch.equal(a, b) for a, b in zip(affected(twin), affected(layer), strict=True))
            assert all(value.grad is not None and bool(value.grad.any()) for value in affected(twin))
            W = weight_from(*(value.detach().double() for value in affected(twin))).float()
            step = 2 * W.abs().amax(1, keepdim=True) / 255
            assert bool(((twin.weight_fake_quant(twin.weight) - W).abs() <= step).all())
            deployed = quantization.convert(training.eval())
            found = deployed[1].weight().dequantize()
            torch.optim.SGD(training.parameters(), lr=0.1).step()
            assert on.orthogonality_error(training)["1.weight"] < 1e-5
        torch.testing.assert_close(found, W, rtol=0, atol=float(step.max()))

    return check


def quantize_dynamic(layer: nn.Module) -> Any:
    model = nn.Sequential(copy.deepcopy(layer)).float().eval()
    with deprecated():
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear})


def close_to_plain(quantized: nn.Module, plain: nn.Module, x: Tensor) -> None:
    """Compare with the output in float, to what 8 bits leave of it."""
    expected = plain(x)
    assert float((quantized(x) - expected).detach().abs().max()) < 0.03 * float(expected.detach().abs().max())


def quantized_dynamically() -> None:
    layer = layer_of().float()
    quantized = quantize_dynamic(on.fold(layer))
    assert "quantized" in type(quantized[0]).__module__
    close_to_plain(quantized, layer, torch.randn(3, 8))


def passed_over() -> None:
    layer = on.OrthogonalLinear(8, 4)
    with deprecated():
        training: Any = nn.Sequential(layer)
        training.qconfig = torch.ao.quantization.get_default_qat_qconfig("fbgemm")
        assert type(torch.ao.quantization.prepare_qat(training.train())[0]) is type(layer)
    left = quantize_dynamic(layer)
    assert left[0].weight.dtype == torch.float32
    assert torch.equal(left[0].weight, layer.weight)
    quantized = quantize_dynamic(on.fold(layer))
    assert "quantized" in type(quantized[0]).__module__


def torchao_quantize(layer: nn.Module) -> Any:
    with deprecated():
        from torchao.quantization import Int8WeightOnlyConfig, quantize_  # pyright: ignore[reportMissingImports]

        model = nn.Sequential(copy.deepcopy(layer).float())
        quantize_(model, Int8WeightOnlyConfig())
    return model


def quantized_by_torchao() -> None:
    layer = on.orthogonal_weight_norm(nn.Linear(64, 32), scale="learned")
    quantized = torchao_quantize(on.fold(layer))
    assert "torchao" in type(quantized[0].weight).__module__
    close_to_plain(quantized, layer, torch.randn(3, 64))


QUANTIZATION = (
    Row(
        "eager quantization-aware training, without a scale",
        "trains `V`, and `convert` takes `W`",
        quantized_in_training(None),
    ),
    Row(
        "eager quantization-aware training, with a learned scale",
        "trains `V` and the scale, and `convert` takes `W`",
        quantized_in_training("learned"),
    ),
    Row(
        "`quantize_dynamic(model, {nn.Linear})`",
        "",
        quantized_dynamically,
        act=quantize_dynamic,
        raises=AssertionError,
        names=("ParametrizedLinear",),
        **TORCHS,
    ),
    Row(
        "`torch.ao.quantization` on `OrthogonalLinear`",
        "passed over, since torch's table knows `nn.Linear` alone: stays in float, and right",
        passed_over,
        cure=FOLD,
    ),
    Row(
        "`torchao.quantization.quantize_(model, ...)`",
        "",
        quantized_by_torchao,
        act=torchao_quantize,
        needs="torchao",
        **OURS,
    ),
)
