"""Pre-activation residual networks: the bottleneck one for CIFAR, up to depth 1001, and ImageNet's with 34 layers."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from orthonorm_paper.exceptions import UserError

from ._checks import check_image
from ._residual import PreActivation, conv1x1, conv3x3, finished, norm_relu, projection


def preresnet_cifar(*, shape: tuple[int, ...], classes: int, start: str, seed: int, depth: int = 1001) -> nn.Sequential:
    """Three stages of (depth - 2) / 9 bottlenecks (1 x 1, 3 x 3, 1 x 1) of 16, 32, 64 planes, 4 times as many out.

    Args:
        shape: ``(channels, 32, 32)``.
        classes: outputs of the classifier.
        start: entry of ``STARTS``.
        seed: of the initialization.
        depth: 9 n + 2; the paper compares with 1001.

    Raises:
        UserError: images of another size, an unknown initialization, or a depth that cannot be.

    Examples:
        >>> network = preresnet_cifar(shape=(3, 32, 32), classes=10, start="he", seed=0, depth=11)
        >>> sum(p.numel() for p in network.parameters())
        126746

    Reference: He et al. 2016, "Identity Mappings in Deep Residual Networks".
    """
    inputs = check_image(shape, "preresnet-cifar", side=32)
    if depth < 11 or (depth - 2) % 9:
        raise UserError(f"depth of a preresnet-cifar must be 9 n + 2 (11, 20, ..., 164, 1001); got {depth}.")
    channels = 16
    layers = OrderedDict[str, nn.Module](stem=conv3x3(inputs, channels))
    for number, planes in enumerate((16, 32, 64)):
        blocks = []
        for index in range((depth - 2) // 9):
            stride = 2 if number and not index else 1
            blocks.append(_bottleneck(channels, planes, stride))
            channels = 4 * planes
        layers[f"stage{number + 1}"] = nn.Sequential(*blocks)
    return finished(layers, channels, nn.AvgPool2d(8), classes, start, seed)


def preresnet34(*, shape: tuple[int, ...], classes: int, start: str, seed: int) -> nn.Sequential:
    """Pre-activation ResNet-34: stem 7 x 7 / 2 and pooling, then 3, 4, 6, 3 blocks of 64, 128, 256, 512 channels.

    The first block has no activation of its own: the stem ends in one. Arguments and errors as ``preresnet_cifar``,
    for images of at least 64 x 64.

    Reference: as ``preresnet_cifar``; the arrangement is that of fb.resnet.torch, which the paper used.
    """
    inputs = check_image(shape, "preresnet34", least=64)
    channels = 64
    stem = nn.Sequential(
        nn.Conv2d(inputs, channels, 7, stride=2, padding=3, bias=False),
        norm_relu(channels),
        nn.MaxPool2d(3, stride=2, padding=1),
    )
    layers = OrderedDict[str, nn.Module](stem=stem)
    for number, (blocks, outputs) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        stage = []
        for index in range(blocks):
            stride = 2 if number and not index else 1
            first = number == index == 0
            stage.append(_basic(channels, outputs, stride, nn.Identity() if first else norm_relu(channels)))
            channels = outputs
        layers[f"stage{number + 1}"] = nn.Sequential(*stage)
    return finished(layers, channels, nn.AdaptiveAvgPool2d(1), classes, start, seed)


def _bottleneck(inputs: int, planes: int, stride: int) -> PreActivation:
    body = nn.Sequential(
        conv1x1(inputs, planes),
        norm_relu(planes),
        conv3x3(planes, planes, stride),
        norm_relu(planes),
        conv1x1(planes, 4 * planes),
    )
    return PreActivation(norm_relu(inputs), body, projection(inputs, 4 * planes, stride))


def _basic(inputs: int, outputs: int, stride: int, activation: nn.Module) -> PreActivation:
    body = nn.Sequential(conv3x3(inputs, outputs, stride), norm_relu(outputs), conv3x3(outputs, outputs))
    return PreActivation(activation, body, projection(inputs, outputs, stride))
