"""Small networks, their data, and a training that one process and several run alike."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torchvision.models import get_model

import orthonorm as on
from orthogonal_layers import weight
from orthonorm_paper.models import build_model

Data = tuple[Tensor, Tensor]


class Mixed(nn.Module):
    """One layer of each layout: uneven groups, convolution groups, a transposed one, a padding row, a shared weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 9, padding_idx=1)
        self.conv = nn.Conv2d(1, 10, 3)
        self.grouped = nn.Conv2d(10, 8, 1, groups=2)
        self.up = nn.ConvTranspose2d(8, 3, 2)
        self.hidden = nn.Linear(12, 12)
        self.again = nn.Linear(12, 12)
        self.again.weight = self.hidden.weight
        self.last = nn.Linear(12, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        """Take tokens (batch, 9) to (batch, 3)."""
        x = self.conv(self.embed(tokens).unsqueeze(1)).tanh()[..., :1, :1]
        x = self.up(self.grouped(x).tanh()).flatten(1)
        return self.last(self.again(self.hidden(x).tanh()).tanh())


def mixed(dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return the converted `Mixed`, the same on every rank."""
    torch.manual_seed(1)
    model = Mixed().to(dtype)
    on.orthogonalize_(
        model, on.OrthogonalConfig(group_size=4), lambda m, _: hasattr(m, "weight") and m is not model.last
    )
    for module in (model.conv, model.last):
        assert module.bias is not None
    return model


def mixed_data(count: int = 12) -> Data:
    """Return tokens and labels."""
    generator = torch.Generator().manual_seed(2)
    return torch.randint(0, 5, (count, 9), generator=generator), torch.randint(0, 3, (count,), generator=generator)


class Tokens(nn.Module):
    """The layers that read their weights on the side: attention and a recurrent one."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.lstm = nn.LSTM(8, 6, batch_first=True)
        self.last = nn.Linear(6, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        """Take tokens (batch, 9) to (batch, 3)."""
        x = self.embed(tokens)
        return self.last(self.lstm(self.attention(x, x, x)[0])[0][:, -1])


def tokens() -> Tokens:
    """Return the converted `Tokens`, the same on every rank."""
    torch.manual_seed(1)
    model, config = Tokens(), on.OrthogonalConfig(scale="row_norms", input_weights=True)
    on.orthogonalize_(model, config, lambda module, _: isinstance(module, nn.MultiheadAttention | nn.LSTM))
    return model


def mlp(
    widths: tuple[int, ...], *, group_size: int | None = 4, scale: bool = True, center: bool = False
) -> nn.Sequential:
    """Return a converted network of linear layers whose classifier is plain."""
    torch.manual_seed(1)
    layers: list[nn.Module] = []
    for width, after in pairwise(widths):
        layers += [nn.Linear(width, after), nn.Tanh()]
    model = nn.Sequential(*layers[:-1])
    config = on.OrthogonalConfig(group_size=group_size, center=center, scale="row_norms" if scale else None)
    on.orthogonalize_(model, config)
    return model


def mlp_data(inputs: int, classes: int, count: int = 12) -> Data:
    """Return inputs and labels."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(count, inputs, generator=generator), torch.randint(0, classes, (count,), generator=generator)


def share(data: Data) -> Data:
    """Return this rank's part of a batch; all of it in a single process."""
    if not dist.is_initialized():
        return data
    rank, world = dist.get_rank(), dist.get_world_size()
    return data[0].chunk(world)[rank], data[1].chunk(world)[rank]


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Data,
    steps: int = 4,
    after: Callable[[int], object] | None = None,
) -> list[float]:
    """Train on the same batch, of which each rank has its part, and return the losses."""
    x, y = share(data)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if after is not None:
            after(step)
    return losses


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer of these tests."""
    return torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)


def plain_state(model: nn.Module) -> dict[str, Tensor]:
    """Return a model's state, detached and copied."""
    return {key: value.detach().clone() for key, value in model.state_dict().items()}


def large(name: str, *, values: bool = True) -> nn.Module:
    """Return a converted network of real size, VGG or ResNet-50, with random V or on the meta device."""
    with torch.device("meta"):
        if name == "vgg":
            model: nn.Module = build_model("vgg", {}, shape=(3, 32, 32), classes=10, start="paper", seed=0)
        else:
            model = get_model(name)
    on.orthogonalize_(model, on.OrthogonalConfig(group_size=64))
    if values:
        model.to_empty(device="cpu")
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -1, 1)
    return model


class Reader(nn.Module):
    """Reads every orthogonal weight of a model once and does nothing else, so that only their map is counted."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self) -> Tensor:
        """Return a number whose gradient reaches every weight."""
        owners = [module for module in self.model.modules() if hasattr(module, "parametrizations")]
        return torch.stack([(weight(layer) * 0.5).square().sum() for layer in owners]).sum()


class Gathered(TorchDispatchMode):
    """Records `(name, type, entries of the larger side)` of each collective of torch.distributed that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, torch.dtype, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the call and run it."""
        if func.namespace == "c10d":
            name = func._schema.name.split("::")[1].strip("_").removesuffix("_base")
            sides = [tensors(arg) for arg in args[:2]]
            largest = max(sides, key=lambda side: sum(t.numel() for t in side))
            self.found.append((name, largest[0].dtype, sum(t.numel() for t in largest)))
        return func(*args, **(kwargs or {}))

    def bytes(self) -> int:
        """Return what all of them hold."""
        return sum(dtype.itemsize * count for _, dtype, count in self.found)


def tensors(value: Any) -> list[Tensor]:
    """Return the tensors of an argument that may be one, or a list of them."""
    if isinstance(value, Tensor):
        return [value]
    return [t for part in value for t in tensors(part)] if isinstance(value, list | tuple) else []
