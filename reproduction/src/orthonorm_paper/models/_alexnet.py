"""AlexNet with batch normalisation, in the widths of "One weird trick"."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn

from ._checks import check_image, check_probability, narrowed
from ._initialization import start_

_EPS = 1e-3
# Output channels, kernel, stride, padding, and whether a 3 x 3 / 2 max-pooling follows.
_CONVOLUTIONS = (
    (64, 11, 4, 2, True),
    (192, 5, 1, 2, True),
    (384, 3, 1, 1, False),
    (256, 3, 1, 1, False),
    (256, 3, 1, 1, True),
)
_HIDDEN = 4096


def alexnet(
    *,
    shape: tuple[int, ...],
    classes: int,
    start: str,
    seed: int,
    width: int | float = 1.0,
    dropout: int | float = 0.5,
) -> nn.Sequential:
    """Five convolutions and two hidden linear layers, each with batch normalisation and ReLU, and a classifier.

    Args:
        shape: ``(channels, height, width)``, at least 64 x 64; 224 x 224 in the paper.
        classes: outputs of the classifier.
        start: entry of ``STARTS``.
        seed: of the initialization.
        width: factor of all widths.
        dropout: before each hidden linear layer.

    Raises:
        UserError: smaller images, an unknown initialization, or a width or probability that cannot be.

    Examples:
        >>> network = alexnet(shape=(3, 64, 64), classes=10, start="he", seed=0, width=0.125)
        >>> network.features[0]
        Conv2d(3, 8, kernel_size=(11, 11), stride=(4, 4), padding=(2, 2), bias=False)

    Reference: Krizhevsky 2014, arXiv:1404.5997; with batch normalisation as in imagenet-multiGPU.torch.
    """
    inputs = check_image(shape, "alexnet", least=64)
    check_probability("dropout", dropout)
    features: list[nn.Module] = []
    for channels, kernel, stride, padding, pooled in _CONVOLUTIONS:
        outputs = narrowed(channels, width)
        features.append(nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False))
        features += [nn.BatchNorm2d(outputs, eps=_EPS), nn.ReLU()]
        features += [nn.MaxPool2d(3, stride=2)] if pooled else []
        inputs = outputs
    # 224 x 224 arrives as 6 x 6 already.
    features += [nn.AdaptiveAvgPool2d(6), nn.Flatten()]
    inputs *= 36
    classifier: list[nn.Module] = []
    for _ in range(2):
        outputs = narrowed(_HIDDEN, width)
        classifier += [nn.Dropout(dropout), nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs, eps=_EPS), nn.ReLU()]
        inputs = outputs
    classifier.append(nn.Linear(inputs, classes))
    layers = OrderedDict[str, nn.Module](features=nn.Sequential(*features), classifier=nn.Sequential(*classifier))
    network = nn.Sequential(layers)
    start_(network, start, seed)
    return network
