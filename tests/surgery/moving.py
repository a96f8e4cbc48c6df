"""Parameters swapped, moved as one vector, and averaged."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import orthonorm as on
from orthogonal_layers import free
from surgery.rows import Row, affected, assert_right, layer_of

__all__ = ["MOVES"]


def swapped() -> None:
    layer, X = layer_of(), nn.Parameter(torch.randn(4, 8).double())
    value = X.detach().clone()
    torch.utils.swap_tensors(free(layer), X)
    assert_right(layer, value)


@contextmanager
def swapping() -> Iterator[None]:
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def converted_by_swap() -> None:
    layer = layer_of()
    V, scale = (value.detach().clone() for value in affected(layer))
    with swapping():
        layer.float()
        assert layer.weight.dtype == torch.float32
        layer.double()
    assert_right(layer, V.float().double(), scale.float().double())


def loaded_by_swap() -> None:
    layer, plain = layer_of(), nn.Linear(8, 4).double()
    with swapping():
        layer.load_state_dict(plain.state_dict())
    assert_right(layer, plain.weight, torch.ones(4).double())


def as_vector() -> None:
    layer = layer_of()
    vector = parameters_to_vector(layer.parameters())
    assert vector.numel() == sum(p.numel() for p in layer.parameters()) == 4 + 32 + 4
    other = layer_of()
    vector_to_parameters(vector, other.parameters())
    assert_right(other, free(layer), affected(layer)[1])


def average_of(weights: list[float], **options: object) -> None:
    """Update an average by three states: it holds these multiples of their V and scale, and computes with them."""
    layer = layer_of()
    average = AveragedModel(nn.Sequential(layer), **options)  # type: ignore[arg-type]
    states = []
    for _ in weights:
        with torch.no_grad():
            for value in affected(layer):
                value.uniform_(0.5, 2.0)
        states.append([value.detach().clone() for value in affected(layer)])
        average.update_parameters(nn.Sequential(layer))
    V, scale = (sum(w * state[i] for w, state in zip(weights, states, strict=True)) for i in range(2))
    assert_right(average.module[0], V, scale)  # type: ignore[arg-type, index]
    assert on.orthogonality_error(average)["module.0.weight"] < 1e-12
    plain, x = on.fold(average.module), torch.randn(3, 8).double()
    torch.testing.assert_close(plain(x), average(x))


def averaged_equally() -> None:
    average_of([1 / 3] * 3)


def averaged_exponentially() -> None:
    average_of([0.81, 0.09, 0.1], multi_avg_fn=get_ema_multi_avg_fn(0.9))


OF_V = "averages `V` and the scale; its weight is orthogonal, not the average of the weights"
MOVES = (
    Row("`torch.utils.swap_tensors(V, X)`", "computes with the new `V`", swapped),
    Row(
        "`layer.to(...)` with `set_swap_module_params_on_conversion(True)`",
        "as without it",
        converted_by_swap,
    ),
    Row(
        "`load_state_dict` of a plain checkpoint with the same setting",
        "as without it",
        loaded_by_swap,
    ),
    Row(
        "`parameters_to_vector`, `vector_to_parameters`",
        "a vector of `V`, scale and bias, to and fro",
        as_vector,
    ),
    Row("`swa_utils.AveragedModel(model)`", OF_V, averaged_equally),
    Row("`AveragedModel` with `get_ema_multi_avg_fn`", OF_V, averaged_exponentially),
)
