"""One small network as each framework wants it, plain and with an `__init__` that converts."""

from typing import Any

import lightning
import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models.modeling_utils import ModelMixin
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

import orthonorm as on
from orthogonal_layers import polar

X = torch.randn(5, 8, generator=torch.Generator().manual_seed(5))


class Net(nn.Module):
    """Two layers that become orthogonal, and an output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(8, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.b(torch.tanh(self.a(x)))))


class ConvertedNet(Net):
    def __init__(self) -> None:
        super().__init__()
        on.orthogonalize_(self)


class OfTransformers(PreTrainedModel):
    config_class = PreTrainedConfig
    converts = False

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config)
        self.net = ConvertedNet() if self.converts else Net()
        self.post_init()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.to(self.dtype))


class ConvertedOfTransformers(OfTransformers):
    converts = True


class OfDiffusers(ModelMixin, ConfigMixin):
    @register_to_config
    def __init__(self, converts: bool = False) -> None:
        super().__init__()
        self.net = ConvertedNet() if converts else Net()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class ConvertedOfDiffusers(OfDiffusers):
    @register_to_config
    def __init__(self, converts: bool = True) -> None:
        super().__init__(converts=True)


class OfLightning(lightning.LightningModule):
    def __init__(self, converts: bool = False) -> None:
        super().__init__()
        self.net = ConvertedNet() if converts else Net()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class ConvertedOfLightning(OfLightning):
    def __init__(self) -> None:
        super().__init__(converts=True)


def converted_net_of_tests(pretrained: bool = False, **options: Any) -> nn.Module:
    return ConvertedNet()


def trained(model: Any) -> Any:
    """Give a model other values than any start."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    return model


def nearest(model: nn.Module) -> nn.Module:
    """The plain model whose weights are the orthonormal ones nearest to those that it had."""
    net: Any = getattr(model, "net", model)
    with torch.no_grad():
        for layer in (net.a, net.b):
            layer.weight.copy_(polar(layer.weight, center=False))
    return model
