"""The pre-activation residual block and the end of a network, which wide and pre-activation ones share."""

from __future__ import annotations

from collections import OrderedDict

from jaxtyping import Float
from torch import Tensor, nn

from ._initialization import start_


class PreActivation(nn.Module):
    r"""``y = shortcut + body(a)`` with ``a = activation(x)``.

    The shortcut is ``x`` itself, or ``projection(a)`` where channels or size change: the projection then shares the
    activation with the body.

    Args:
        activation: batch normalisation and ReLU; Identity where ``x`` comes out of a ReLU.
        body: convolutions with normalisation and ReLU between them.
        projection: 1 x 1 convolution, or None.

    Reference: He et al. 2016, "Identity Mappings in Deep Residual Networks".
    """

    def __init__(self, activation: nn.Module, body: nn.Module, projection: nn.Module | None) -> None:
        super().__init__()
        self.activation: nn.Module = activation
        self.body: nn.Module = body
        self.projection: nn.Module | None = projection

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b n v u"]:
        """Shortcut plus residual."""
        activated = self.activation(x)
        shortcut = x if self.projection is None else self.projection(activated)
        return shortcut + self.body(activated)


def norm_relu(channels: int) -> nn.Sequential:
    """Batch normalisation, then ReLU."""
    return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())


def conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """3 x 3 convolution without bias that keeps the size, or halves it at stride 2."""
    return nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)


def conv1x1(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """1 x 1 convolution without bias."""
    return nn.Conv2d(inputs, outputs, 1, stride, bias=False)


def projection(inputs: int, outputs: int, stride: int) -> nn.Conv2d | None:
    """1 x 1 shortcut where the number of channels changes, else None."""
    return conv1x1(inputs, outputs, stride) if inputs != outputs else None


def finished(
    layers: OrderedDict[str, nn.Module], channels: int, pool: nn.Module, classes: int, start: str, seed: int
) -> nn.Sequential:
    """The network of these layers with a last activation, a pooling and a classifier, started by name."""
    layers["activation"] = norm_relu(channels)
    layers["pool"] = pool
    layers["flatten"] = nn.Flatten()
    layers["classifier"] = nn.Linear(channels, classes)
    network = nn.Sequential(layers)
    start_(network, start, seed)
    return network
