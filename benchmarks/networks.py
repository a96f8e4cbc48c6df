"""The networks whose steps and calls are measured."""

import importlib.util
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["NETWORKS", "Network", "available"]


class Network(NamedTuple):
    """A network to be measured: how it is made, its input, and the size of its groups of rows (None for the limit)."""

    make: Callable[[], nn.Module]
    shape: tuple[int, ...]
    classes: int
    group: int | None

    def batch(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Return random inputs and classes."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(self.shape, generator=generator)
        y = torch.randint(self.classes, self.shape[:1], generator=generator)
        return x.to(device), y.to(device)


def _mlp() -> nn.Module:
    hidden = [layer for _ in range(3) for layer in (nn.Linear(100, 100), nn.ReLU())]
    return nn.Sequential(nn.Linear(1024, 100), nn.ReLU(), *hidden, nn.Linear(100, 10))


def _vgg() -> nn.Module:
    layers: list[nn.Module] = []
    inputs = 3
    for outputs in (64, 128, 0, 256, 256, 0, 512, 512):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()] if outputs else [nn.MaxPool2d(2)]
        inputs = outputs or inputs
    return nn.Sequential(*layers, nn.AvgPool2d(8), nn.Flatten(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))


def _resnet50() -> nn.Module:
    import torchvision

    return torchvision.models.resnet50()


NETWORKS = {
    "MLP 4 x 100, batch 256": Network(_mlp, (256, 1024), 10, None),
    "MLP 4 x 100, batch 256, groups of 50": Network(_mlp, (256, 1024), 10, 50),
    "VGG, batch 32": Network(_vgg, (32, 3, 32, 32), 10, 64),
    "ResNet-50, batch 8 of 64 x 64": Network(_resnet50, (8, 3, 64, 64), 1000, 64),
}


def available() -> dict[str, Network]:
    """Return the networks that can be made with what is installed."""
    there = importlib.util.find_spec("torchvision") is not None
    return {name: network for name, network in NETWORKS.items() if there or network.make is not _resnet50}
