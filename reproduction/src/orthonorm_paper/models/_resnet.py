"""ResNet-34 for ImageNet: torchvision's."""

from __future__ import annotations

from torch import nn

from orthonorm_paper.exceptions import UserError

from ._checks import check_image
from ._initialization import start_


def resnet34(*, shape: tuple[int, ...], classes: int, start: str, seed: int) -> nn.Module:
    """ResNet-34 of torchvision, its weights drawn by the named initialization.

    Args:
        shape: ``(3, height, width)``, at least 64 x 64; 224 x 224 in the paper.
        classes: outputs of the classifier.
        start: entry of ``STARTS``.
        seed: of the initialization.

    Raises:
        UserError: images that are smaller or not of three channels, or an unknown initialization.

    Reference: He et al. 2015, "Deep Residual Learning for Image Recognition".
    """
    from torchvision.models import resnet34 as torchvision_resnet34

    channels = check_image(shape, "resnet34", least=64)
    if channels != 3:
        raise UserError(f"resnet34 takes images of 3 channels; got {channels}. Choose a data set in colour.")
    network = torchvision_resnet34(weights=None, num_classes=classes)
    start_(network, start, seed)
    return network
