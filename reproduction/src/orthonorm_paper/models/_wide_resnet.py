"""Wide residual networks for CIFAR."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from orthonorm_paper.exceptions import UserError

from ._checks import check_image, check_probability
from ._residual import PreActivation, conv3x3, finished, norm_relu, projection


def wide_resnet(
    *,
    shape: tuple[int, ...],
    classes: int,
    start: str,
    seed: int,
    depth: int = 28,
    width: int = 10,
    dropout: int | float = 0.3,
) -> nn.Sequential:
    """WRN-depth-width: three stages of (depth - 4) / 6 blocks of two 3 x 3 convolutions, 16, 32, 64 times width.

    Args:
        shape: ``(channels, 32, 32)``.
        classes: outputs of the classifier.
        start: entry of ``STARTS``.
        seed: of the initialization.
        depth: 6 n + 4.
        width: factor of the widths of the three stages.
        dropout: between the two convolutions of a block; 0 adds no layer.

    Raises:
        UserError: images of another size, an unknown initialization, or a depth, width or probability that cannot be.

    Examples:
        >>> network = wide_resnet(shape=(3, 32, 32), classes=10, start="he", seed=0, depth=16, width=2)
        >>> sum(p.numel() for p in network.parameters())
        691674

    Reference: Zagoruyko and Komodakis 2016, "Wide Residual Networks".
    """
    inputs = check_image(shape, "wide-resnet", side=32)
    if depth < 10 or (depth - 4) % 6:
        raise UserError(f"depth of a wide-resnet must be 6 n + 4 (10, 16, 22, 28, ...); got {depth}.")
    if width < 1:
        raise UserError(f"width of a wide-resnet must be at least 1; got {width}.")
    check_probability("dropout", dropout)
    channels = 16
    layers = OrderedDict[str, nn.Module](stem=conv3x3(inputs, channels))
    for number, base in enumerate((16, 32, 64)):
        blocks = []
        for index in range((depth - 4) // 6):
            stride = 2 if number and not index else 1
            blocks.append(_block(channels, base * width, stride, dropout))
            channels = base * width
        layers[f"stage{number + 1}"] = nn.Sequential(*blocks)
    return finished(layers, channels, nn.AvgPool2d(8), classes, start, seed)


def _block(inputs: int, outputs: int, stride: int, dropout: int | float) -> PreActivation:
    body: list[nn.Module] = [conv3x3(inputs, outputs, stride), norm_relu(outputs)]
    body += [nn.Dropout(dropout)] if dropout else []
    body.append(conv3x3(outputs, outputs))
    return PreActivation(norm_relu(inputs), nn.Sequential(*body), projection(inputs, outputs, stride))
