"""What is trained: networks and data of the reproduction at reduced size, and which weights are to be orthogonal."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import cached

from orthonorm_paper.data import load_dataset
from orthonorm_paper.models import build_model

__all__ = ["PROBLEMS", "Problem", "Target", "Task", "load"]

Target = tuple[nn.Module, str]
"""A module and the name of the weight in it."""


class Task(NamedTuple):
    """Data in memory."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int


class Problem(NamedTuple):
    """A network, its data set and its budget."""

    dataset: str
    make: Callable[[Task, int], nn.Module]
    targets: Callable[[nn.Module], list[Target]]
    epochs: int
    batch_size: int


class RowsRNN(nn.Module):
    """A recurrent network that reads an image row by row; its recurrent weight is a linear layer, for all ways."""

    def __init__(self, features: int, classes: int, width: int = 64) -> None:
        super().__init__()
        self.read = nn.Linear(features, width)
        self.recur = nn.Linear(width, width, bias=False)
        nn.init.orthogonal_(self.recur.weight)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.read(x.reshape(len(x), -1, x.shape[-1]))
        state = torch.zeros_like(rows[:, 0])
        with cached():
            for row in rows.unbind(1):
                state = torch.tanh(row + self.recur(state))
        return self.head(state)


def _mlp(task: Task, seed: int) -> nn.Module:
    shape = tuple(task.train_x.shape[1:])
    arguments = {"hidden_layers": 8}
    return build_model("mlp", arguments, shape=shape, classes=task.classes, start="orthogonal", seed=seed)


def _vgg(task: Task, seed: int) -> nn.Module:
    shape = tuple(task.train_x.shape[1:])
    return build_model("vgg", {"width": 0.125}, shape=shape, classes=task.classes, start="orthogonal", seed=seed)


def _rows(task: Task, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return RowsRNN(task.train_x.shape[-1], task.classes)


def _between(model: nn.Module) -> list[Target]:
    """Every layer but the first and the classifier: torch's map of the first, 100 x 1024, takes a second a step."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    return [(layer, "weight") for layer in layers[1:-1]]


def _recurrent(model: nn.Module) -> list[Target]:
    assert isinstance(model, RowsRNN)
    return [(model.recur, "weight")]


PROBLEMS = {
    "mlp8": Problem("mnist-5k", _mlp, _between, epochs=12, batch_size=64),
    "rows-5k": Problem("mnist-5k", _rows, _recurrent, epochs=10, batch_size=100),
    "vgg-5k": Problem("mnist-5k-rgb", _vgg, _between, epochs=4, batch_size=32),
}


def load(problem: Problem) -> Task:
    """Read the data of a problem."""
    data = load_dataset(problem.dataset)
    return Task(data.train_x, data.train_y, data.test_x, data.test_y, data.classes)
