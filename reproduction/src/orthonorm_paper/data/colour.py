"""Random colours of a training image, as the public ResNet implementation changes them, which the paper cites."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

# Brightness, contrast and saturation are multiplied by a factor in [0.6, 1.4].
JITTER = 0.4
# Standard deviation of the three coordinates of a light, in units of the eigenvalues below.
LIGHT = 0.1
# Of the covariance of ImageNet's pixels on the scale 0 to 1 (a row a channel, a column an eigenvector).
_EIGENVALUES = (0.2175, 0.0188, 0.0045)
_EIGENVECTORS = ((-0.5675, 0.7192, 0.4009), (-0.5808, -0.0045, -0.8140), (-0.5836, -0.6948, 0.4203))


def jitter() -> nn.Module:
    """Random brightness, contrast and saturation, in random order."""
    from torchvision.transforms import v2

    return v2.ColorJitter(brightness=JITTER, contrast=JITTER, saturation=JITTER)


class Lighting(nn.Module):
    """Adds one random colour to all pixels, along the principal components of ImageNet's pixels.

    Source: Krizhevsky, Sutskever, Hinton (2012), section 4.1.
    """

    def forward(self, image: Float[Tensor, "3 h w"]) -> Float[Tensor, "3 h w"]:
        """The image, on the scale 0 to 1, in another light; draws from torch's generator."""
        coordinates = LIGHT * torch.randn(3, dtype=image.dtype) * torch.tensor(_EIGENVALUES, dtype=image.dtype)
        return image + (torch.tensor(_EIGENVECTORS, dtype=image.dtype) @ coordinates).view(3, 1, 1)
