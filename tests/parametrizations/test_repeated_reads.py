"""One forward that computes one unchanged weight many times says so once; nothing else is taken for it."""

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import orthonorm as on
from orthogonal_layers import free, map_of

STEPS = 30


class Unrolled(nn.Module):
    """A recurrent cell of our layer, applied again and again."""

    def __init__(self, layer: nn.Module, steps: int = STEPS) -> None:
        super().__init__()
        self.cell, self.steps = layer, steps

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.steps):
            x = torch.tanh(self.cell(x))
        return x


def warned(call: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    # torch warns of itself in forward mode.
    return [text for entry in caught if "orthonorm" in (text := str(entry.message))]


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "one group": lambda: on.OrthogonalLinear(8, 8),
    "groups of two sizes, a scale": lambda: on.OrthogonalLinear(8, 8, group_size=3, scale="learned"),
    "blocks, centred": lambda: on.orthogonal_weight_norm(nn.Linear(8, 8), blocks=2, center=True),
    "columns": lambda: on.OrthogonalLinear(8, 8, tall="columns"),
    "newton": lambda: on.OrthogonalLinear(8, 8, method="newton", precision="float64"),
    "float64": lambda: on.OrthogonalLinear(8, 8).double(),
}


def inputs(layer: nn.Module) -> Tensor:
    return torch.randn(2, 8, dtype=free(layer).dtype)


@pytest.mark.parametrize("case", LAYERS)
def test_case_41_an_unrolled_cell_is_told_once_with_the_cure(case: str):
    model = Unrolled(LAYERS[case]())
    x = inputs(model.cell)
    first, second = warned(lambda: model(x).sum().backward()), warned(lambda: model(x).sum().backward())
    assert len(first) == 1
    assert [name for name in ("weight", "orthonorm.cached", "orthonorm.register_cached") if name not in first[0]] == []
    assert second == []


def test_case_41_a_convolution_and_its_transpose():
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.there = on.OrthogonalConv2d(2, 4, 3, groups=2)
            self.back = on.OrthogonalConvTranspose2d(4, 2, 3, groups=2, scale="learned")

        def forward(self, x: Tensor) -> Tensor:
            return self.back(self.there(x))

    assert len(warned(lambda: Unrolled(Both())(torch.randn(1, 2, 5, 5)))) == 2


def test_the_cures_are_silent():
    layer = on.OrthogonalLinear(8, 8)
    model, x = Unrolled(layer), torch.randn(2, 8)
    with on.cached(model):
        model(x).sum().backward()
    on.register_cached(model)
    model(x).sum().backward()
    assert not map_of(layer).reads.told


def accumulate(layer: Any, kept: list[Tensor]) -> None:
    loss = layer(torch.randn(2, 8)).square().sum()
    loss.backward()
    kept.append(loss)


def update_by_hand(layer: Any, kept: list[Tensor]) -> None:
    """A step that torch counts no version of, as a fused optimizer's."""
    accumulate(layer, kept)
    free(layer).data -= 0.01 * free(layer).grad  # type: ignore[operator]
    layer.zero_grad()


def by_functional_gradient(layer: Any, kept: list[Tensor]) -> None:
    kept.extend(torch.autograd.grad(layer(torch.randn(2, 8)).square().sum(), layer.parameters()))


def forward_only(layer: Any, kept: list[Tensor]) -> None:
    kept.append(layer(torch.randn(2, 8)).detach())


def evaluate(layer: Any, kept: list[Tensor]) -> None:
    kept.append(layer.eval()(torch.randn(2, 8)))


def evaluate_without_graph(layer: Any, kept: list[Tensor]) -> None:
    with torch.no_grad():
        kept.append(layer(torch.randn(2, 8)))


def frozen(layer: Any, kept: list[Tensor]) -> None:
    kept.append(layer.requires_grad_(False)(torch.randn(2, 8, requires_grad=True)))


def functional(layer: Any, kept: list[Tensor]) -> None:
    def loss(V: Tensor) -> Tensor:
        out = torch.func.functional_call(layer, {"parametrizations.weight.original": V}, (torch.ones(2, 8),))
        return out.square().sum()

    kept.append(torch.func.grad(loss)(free(layer)))


def weights_made_by_a_network(layer: Any, kept: list[Tensor]) -> None:
    V = (torch.randn(()) * free(layer)).tanh()
    kept.append(torch.func.functional_call(layer, {"parametrizations.weight.original": V}, (torch.ones(2, 8),)))


def stepped(layer: Any, kept: list[Tensor]) -> None:
    kept.append(layer(torch.randn(2, 8)).square().sum())
    with torch.no_grad():
        free(layer).mul_(1.01)


LOOPS = (
    accumulate,
    update_by_hand,
    by_functional_gradient,
    forward_only,
    evaluate,
    evaluate_without_graph,
    frozen,
    functional,
    weights_made_by_a_network,
    stepped,
)


@pytest.mark.parametrize("loop", LOOPS)
def test_other_loops_are_not_taken_for_it(loop: Callable[[Any, list[Tensor]], None]):
    layer, kept = on.OrthogonalLinear(8, 8), []
    assert warned(lambda: [loop(layer, kept) for _ in range(2 * STEPS)]) == []
    assert len(kept) >= 2 * STEPS


def test_a_few_uses_are_not_many():
    model = Unrolled(on.OrthogonalLinear(8, 8), steps=19)
    for _ in range(3):
        model(torch.randn(2, 8)).sum().backward()


def test_batches_that_wait_for_one_backward_are_many():
    layer = on.OrthogonalLinear(8, 8)
    losses: list[Tensor] = []
    assert len(warned(lambda: losses.extend(layer(torch.randn(2, 8)).sum() for _ in range(STEPS)))) == 1


def test_a_copy_starts_to_count_anew():
    layer = on.OrthogonalLinear(8, 8)
    assert len(warned(lambda: Unrolled(layer)(torch.randn(2, 8)))) == 1
    for reads in (copy.deepcopy(map_of(layer).reads), pickle.loads(pickle.dumps(map_of(layer).reads))):
        assert not reads.told
    assert len(warned(lambda: Unrolled(copy.deepcopy(layer))(torch.randn(2, 8)))) == 1
    assert list(layer.state_dict()) == list(on.OrthogonalLinear(8, 8).state_dict())


TRANSFORMS: dict[str, Callable[[nn.Module, Tensor], object]] = {
    "vmap": lambda model, x: torch.vmap(model)(x),
    "grad": lambda model, x: torch.func.grad(lambda x: model(x).sum())(x),
    "vjp": lambda model, x: torch.func.vjp(model, x)[1](torch.ones(2, 8)),
    "jvp": lambda model, x: torch.func.jvp(model, (x,), (x,)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_the_input_warn_at_most_once(transform: str):
    model, x = Unrolled(on.OrthogonalLinear(8, 8)), torch.randn(2, 8)
    assert len(warned(lambda: TRANSFORMS[transform](model, x))) <= 1
    assert warned(lambda: TRANSFORMS[transform](model, x)) == []


@pytest.mark.compiled
def test_compiled_code_counts_nothing():
    model = Unrolled(on.OrthogonalLinear(8, 8), steps=2)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    for _ in range(10):
        compiled(torch.randn(2, 8)).sum().backward()
    exported = torch.export.export(model, (torch.randn(2, 8),))
    assert len(map_of(model.cell).reads.waiting) <= 2  # torch reads the weight once each time it traces
    assert exported.module()(torch.zeros(2, 8)).shape == (2, 8)


@pytest.mark.parametrize("converted", [False, True])
def test_activation_checkpointing_computes_each_forward_twice_and_warns_of_nothing(converted: bool):
    layer = nn.Linear(8, 8)
    if converted:
        on.orthogonal_weight_norm(layer)
    forwards: list[int] = []
    layer.register_forward_pre_hook(lambda *_: forwards.append(1))

    def accumulate() -> None:
        for _ in range(STEPS):
            checkpoint(layer, torch.randn(2, 8), use_reentrant=False).square().sum().backward()

    assert warned(accumulate) == []
    assert len(forwards) == 2 * STEPS
    forwards.clear()
    x = torch.randn(2, 8)
    for _ in range(12):  # one layer again and again: with the forwards of the backward more than are counted
        x = checkpoint(layer, x, use_reentrant=False)
    x.sum().backward()
    assert len(forwards) == 2 * 12
