"""The filters that we make orthonormal are those that torch's layers apply, seen through unit inputs."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from orthonorm.functional import orthonormalize
from orthonorm.functional._rows import as_rows, from_rows

Make = Callable[[], nn.Linear | _ConvNd]

CASES: dict[str, Make] = {
    "linear": lambda: nn.Linear(9, 4),
    "conv1d": lambda: nn.Conv1d(3, 5, 4),
    "conv2d": lambda: nn.Conv2d(3, 5, (2, 3)),
    "conv3d": lambda: nn.Conv3d(2, 4, 2),
    "conv2d grouped": lambda: nn.Conv2d(4, 6, 3, groups=2),
    "conv1d depthwise": lambda: nn.Conv1d(4, 8, 5, groups=4),
    "transposed 1d": lambda: nn.ConvTranspose1d(5, 3, 4),
    "transposed 2d": lambda: nn.ConvTranspose2d(4, 6, (2, 3)),
    "transposed 2d grouped": lambda: nn.ConvTranspose2d(4, 6, 3, groups=2),
    "transposed 3d grouped": lambda: nn.ConvTranspose3d(6, 3, 2, groups=3),
}
EACH_LAYER = pytest.mark.parametrize("make", CASES.values(), ids=CASES)


def arrangement(layer: nn.Linear | _ConvNd) -> tuple[int, bool]:
    """The layer's own groups, and whether it is transposed."""
    return (1, False) if isinstance(layer, nn.Linear) else (layer.groups, layer.transposed)


def seen_filters(layer: nn.Linear | _ConvNd) -> list[Tensor]:
    """The matrix of filters of each group, from what the layer answers to unit inputs; the weight is not read."""
    if isinstance(layer, nn.Linear):
        return [answers_to_unit_inputs(layer, (layer.in_features,)).T]
    spatial = [1] * len(layer.kernel_size) if layer.transposed else list(layer.kernel_size)
    answers = answers_to_unit_inputs(layer, (layer.in_channels, *spatial))
    # An output channel's filter: what each input entry (and, transposed, each place of the kernel) contributes to it.
    filters = answers.transpose(0, 1).reshape(layer.out_channels, layer.in_channels, -1)
    outputs, inputs = layer.out_channels // layer.groups, layer.in_channels // layer.groups
    blocks = []
    for g in range(layer.groups):
        own = filters[g * outputs : (g + 1) * outputs]
        block = own[:, g * inputs : (g + 1) * inputs]
        assert own.count_nonzero() == block.count_nonzero() > 0
        blocks.append(block.flatten(1))
    return blocks


def answers_to_unit_inputs(layer: nn.Module, shape: tuple[int, ...]) -> Tensor:
    """What the layer gives for an input that is one at one place, less what it gives for zeros: a row each place."""
    count = torch.Size(shape).numel()
    units = torch.eye(count, dtype=torch.float64).reshape(count, *shape)
    with torch.no_grad():
        return layer(units) - layer(torch.zeros_like(units))


@EACH_LAYER
def test_rows_are_the_filters_that_the_layer_applies(make: Make):
    layer = make().double()
    groups, transposed = arrangement(layer)
    rows = as_rows(layer.weight, groups=groups, transposed=transposed)
    torch.testing.assert_close(rows, torch.stack(seen_filters(layer)), rtol=0, atol=1e-12)


@EACH_LAYER
def test_the_layer_applies_orthonormal_filters(make: Make, method: str):
    layer = make().double()
    groups, transposed = arrangement(layer)
    rows = orthonormalize(as_rows(layer.weight, groups=groups, transposed=transposed), center=True, method=method)
    with torch.no_grad():
        layer.weight.copy_(from_rows(rows, tuple(layer.weight.shape), transposed=transposed))
    for block in seen_filters(layer):
        torch.testing.assert_close(block @ block.T, torch.eye(len(block), dtype=torch.float64), rtol=0, atol=1e-12)
        assert block.mean(1).abs().max() <= 1e-14


@EACH_LAYER
def test_there_and_back(make: Make):
    layer = make()
    weight = layer.weight.detach()
    groups, transposed = arrangement(layer)
    rows = as_rows(weight, groups=groups, transposed=transposed)
    assert rows.shape[0] == groups
    assert torch.equal(from_rows(rows, tuple(weight.shape), transposed=transposed), weight)


def test_a_convolution_is_not_a_batch_of_kernels(method: str):
    # Cases, row 6: the flattened filters are orthonormal, not each 3x3 matrix.
    weight = torch.randn(16, 8, 3, 3, dtype=torch.float64)
    W = from_rows(orthonormalize(as_rows(weight), method=method), (16, 8, 3, 3))
    flat = W.reshape(16, 72)
    torch.testing.assert_close(flat @ flat.T, torch.eye(16, dtype=torch.float64), rtol=0, atol=1e-12)
