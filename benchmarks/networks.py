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
    rounds: int = 1000
    """At most so many rounds are timed: a large network's step takes seconds."""

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


def _wide_resnet() -> nn.Module:
    from orthonorm_paper.models import wide_resnet

    return wide_resnet(shape=(3, 32, 32), classes=10, start="he", seed=0, depth=16, width=4)


def _resnet50() -> nn.Module:
    import torchvision

    return torchvision.models.resnet50()


class _MeanOfTokens(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def _vit_block() -> nn.Module:
    """One block of ViT-S and a classifier."""
    block = nn.TransformerEncoderLayer(384, 6, 1536, 0.0, "gelu", batch_first=True, norm_first=True)
    return nn.Sequential(block, _MeanOfTokens(), nn.Linear(384, 10))


NETWORKS = {
    "MLP 4 x 100, batch 256": Network(_mlp, (256, 1024), 10, None),
    "MLP 4 x 100, batch 256, groups of 50": Network(_mlp, (256, 1024), 10, 50),
    "VGG, batch 32": Network(_vgg, (32, 3, 32, 32), 10, 64),
    "VGG, batch 128": Network(_vgg, (128, 3, 32, 32), 10, 64, rounds=7),
    "WRN-16-4, batch 128": Network(_wide_resnet, (128, 3, 32, 32), 10, 64, rounds=5),
    "ResNet-50, batch 8 of 64 x 64": Network(_resnet50, (8, 3, 64, 64), 1000, 64),
    "ResNet-50, batch 32 of 224 x 224": Network(_resnet50, (32, 3, 224, 224), 1000, 64, rounds=3),
    "ViT-S block, batch 32 of 197 tokens": Network(_vit_block, (32, 197, 384), 10, 64),
}

# What a network needs beside torch.
_NEEDS = {_resnet50: "torchvision", _wide_resnet: "orthonorm_paper"}


def available() -> dict[str, Network]:
    """Return the networks that can be made with what is installed."""
    return {
        name: network
        for name, network in NETWORKS.items()
        if network.make not in _NEEDS or importlib.util.find_spec(_NEEDS[network.make]) is not None
    }
