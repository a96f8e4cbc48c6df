"""BN-Inception for CIFAR and for ImageNet: two stems before the same ten inception modules."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ._checks import check_image, narrowed
from ._initialization import start_

_EPS = 1e-3


@dataclass(frozen=True)
class _Widths:
    """Output channels of the branches of one module; 0 for a branch, or a projection, that is absent."""

    one: int
    three_reduce: int
    three: int
    double_reduce: int
    double: int
    pool: str
    projection: int


_MODULES = {
    "3a": _Widths(64, 64, 64, 64, 96, "avg", 32),
    "3b": _Widths(64, 64, 96, 64, 96, "avg", 64),
    "3c": _Widths(0, 128, 160, 64, 96, "max", 0),
    "4a": _Widths(224, 64, 96, 96, 128, "avg", 128),
    "4b": _Widths(192, 96, 128, 96, 128, "avg", 128),
    "4c": _Widths(160, 128, 160, 128, 160, "avg", 96),
    "4d": _Widths(96, 128, 192, 160, 192, "avg", 96),
    "4e": _Widths(0, 128, 192, 192, 256, "max", 0),
    "5a": _Widths(352, 192, 320, 160, 224, "avg", 128),
    "5b": _Widths(352, 192, 320, 192, 224, "max", 128),
}


class Inception(nn.Module):
    """Four branches side by side, their channels concatenated: 1 x 1, 3 x 3, twice 3 x 3, and a pooling.

    ``outputs`` is the number of channels that come out.
    """

    def __init__(self, inputs: int, widths: _Widths, width: int | float, *, relu_before_norm: bool = False) -> None:
        super().__init__()
        block = partial(conv_block, relu_before_norm=relu_before_norm)

        def channels(size: int) -> int:
            return narrowed(size, width)

        reduce, three = channels(widths.three_reduce), channels(widths.three)
        double_reduce, double = channels(widths.double_reduce), channels(widths.double)
        pool = nn.AvgPool2d(3, stride=1, padding=1) if widths.pool == "avg" else nn.MaxPool2d(3, stride=1, padding=1)
        branches: dict[str, nn.Module] = {}
        if widths.one:
            branches["one"] = block(inputs, channels(widths.one), 1)
        branches["three"] = nn.Sequential(block(inputs, reduce, 1), block(reduce, three, 3, padding=1))
        branches["twice"] = nn.Sequential(
            block(inputs, double_reduce, 1),
            block(double_reduce, double, 3, padding=1),
            block(double, double, 3, padding=1),
        )
        branches["pool"] = pool
        if widths.projection:
            branches["pool"] = nn.Sequential(pool, block(inputs, channels(widths.projection), 1))
        self.branches: nn.ModuleDict = nn.ModuleDict(branches)
        one = channels(widths.one) if widths.one else 0
        self.outputs: int = one + three + double + (channels(widths.projection) if widths.projection else inputs)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b outputs h w"]:
        """All branches of one input."""
        return torch.cat([branch(x) for branch in self.branches.values()], 1)


def conv_block(
    inputs: int, outputs: int, kernel: int, *, stride: int = 1, padding: int = 0, relu_before_norm: bool = False
) -> nn.Sequential:
    """Convolution without bias, batch normalisation, ReLU.

    With ``relu_before_norm``, the order inside the modules that the paper cites: convolution with bias, ReLU, batch
    normalisation, ReLU.
    """
    layers = OrderedDict[str, nn.Module](
        conv=nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=relu_before_norm)
    )
    if relu_before_norm:
        layers["before"] = nn.ReLU()
    layers["norm"] = nn.BatchNorm2d(outputs, eps=_EPS)
    layers["relu"] = nn.ReLU()
    return nn.Sequential(layers)


def inception_cifar(
    *,
    shape: tuple[int, ...],
    classes: int,
    start: str,
    seed: int,
    width: int | float = 1.0,
    relu_before_norm: bool = False,
) -> nn.Sequential:
    """BN-Inception whose stem is two valid 3 x 3 convolutions (64, 192): 32 x 32 becomes 28 x 28.

    Args:
        shape: ``(channels, 32, 32)``.
        classes: outputs of the classifier.
        start: entry of ``STARTS``.
        seed: of the initialization.
        width: factor of all widths.
        relu_before_norm: inside the modules a ReLU on both sides of the normalisation, as the implementation that the
            paper cites and the released code have it; the stem and the convolutions between stages stay as they are.

    Raises:
        UserError: images of another size, an unknown initialization, or a width outside (0, 64].

    Examples:
        >>> network = inception_cifar(shape=(3, 32, 32), classes=10, start="he", seed=0, width=0.25)
        >>> network(torch.zeros(2, 3, 32, 32)).shape
        torch.Size([2, 10])
    """
    inputs = check_image(shape, "inception-cifar", side=32)
    first, second = narrowed(64, width), narrowed(192, width)
    stem = nn.Sequential(conv_block(inputs, first, 3), conv_block(first, second, 3))
    return _network(stem, second, classes, start, seed, width, relu_before_norm)


def inception_imagenet(
    *,
    shape: tuple[int, ...],
    classes: int,
    start: str,
    seed: int,
    width: int | float = 1.0,
    relu_before_norm: bool = False,
) -> nn.Sequential:
    """BN-Inception with the stem 7 x 7 / 2 (64), pool, 1 x 1 (64), 3 x 3 (192), pool: 224 x 224 becomes 28 x 28.

    No auxiliary classifier. Arguments and errors as ``inception_cifar``, for images of at least 64 x 64.

    Examples:
        >>> network = inception_imagenet(shape=(3, 64, 64), classes=1000, start="he", seed=0, width=0.25)
        >>> network(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 1000])
    """
    inputs = check_image(shape, "inception-imagenet", least=64)
    first, second = narrowed(64, width), narrowed(192, width)
    stem = nn.Sequential(
        conv_block(inputs, first, 7, stride=2, padding=3),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
        conv_block(first, first, 1),
        conv_block(first, second, 3, padding=1),
        nn.MaxPool2d(3, stride=2, ceil_mode=True),
    )
    return _network(stem, second, classes, start, seed, width, relu_before_norm)


def _network(
    stem: nn.Module, inputs: int, classes: int, start: str, seed: int, width: int | float, relu_before_norm: bool
) -> nn.Sequential:
    layers = OrderedDict[str, nn.Module](stem=stem)
    for name, widths in _MODULES.items():
        module = Inception(inputs, widths, width, relu_before_norm=relu_before_norm)
        layers[f"inception{name}"] = module
        inputs = module.outputs
        if name in ("3c", "4e"):
            # These two halve the image without overlap.
            layers[f"down{name[0]}"] = conv_block(inputs, inputs, 2, stride=2)
    # 7 x 7 for the images of the paper.
    layers["pool"] = nn.AdaptiveAvgPool2d(1)
    layers["flatten"] = nn.Flatten()
    layers["classifier"] = nn.Linear(inputs, classes)
    network = nn.Sequential(layers)
    start_(network, start, seed)
    return network
