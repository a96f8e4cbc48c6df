"""The paper's VGG-style network for CIFAR."""

from __future__ import annotations

from torch import nn

from ._checks import check_image, narrowed
from ._initialization import start_

# Output channels of the six 3 x 3 convolutions; a 2 x 2 max-pooling follows the second and the fourth.
_CHANNELS = (64, 128, 256, 256, 512, 512)
_POOLED = (1, 3)


def vgg(
    *,
    shape: tuple[int, ...],
    classes: int,
    start: str,
    seed: int,
    width: int | float = 1.0,
    hidden_classifier: bool = True,
) -> nn.Sequential:
    """Six 3 x 3 convolutions (64, 128, pool, 256, 256, pool, 512, 512), 8 x 8 average, then 512 -> 512 -> classes.

    Each convolution carries a bias and is followed by ReLU.

    Args:
        shape: ``(channels, 32, 32)``.
        classes: outputs of the classifier.
        start: entry of ``STARTS``.
        seed: of the initialization.
        width: factor of all widths.
        hidden_classifier: a hidden layer of 512 units before the classes, as in the released code; the paper's text has
            the classes alone.

    Raises:
        UserError: images of another size, an unknown initialization, or a width outside (0, 64].

    Examples:
        >>> network = vgg(shape=(3, 32, 32), classes=10, start="paper", seed=0)
        >>> sum(p.numel() for p in network.parameters())
        4768650
        >>> text = vgg(shape=(3, 32, 32), classes=10, start="paper", seed=0, hidden_classifier=False)
        >>> sum(p.numel() for p in text.parameters())
        4505994
    """
    inputs = check_image(shape, "vgg", side=32)
    layers: list[nn.Module] = []
    for number, channels in enumerate(_CHANNELS):
        outputs = narrowed(channels, width)
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if number in _POOLED else []
        inputs = outputs
    layers += [nn.AvgPool2d(8), nn.Flatten()]
    if hidden_classifier:
        layers += [nn.Linear(inputs, inputs), nn.ReLU()]
    layers.append(nn.Linear(inputs, classes))
    network = nn.Sequential(*layers)
    start_(network, start, seed)
    return network
