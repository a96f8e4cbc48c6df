"""Weights computed at once, around a call of a network: the same step, and nothing that outlives it."""

import contextlib
import copy
import gc
import pickle
import weakref
from collections import Counter

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import orthonorm as on
from orthonorm.parametrizations.caching._cache import ACTIVE


class Calls(TorchDispatchMode):
    """Counts operator calls by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counter: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counter[str(func)] += 1
        return func(*args, **(kwargs or {}))


def network(depth: int = 6) -> nn.Module:
    layers = [
        nn.Conv2d(3, 8, 3),
        *(nn.Conv2d(8, 8, 3, padding=1) for _ in range(depth)),
        nn.Flatten(),
        nn.Linear(8 * 36, 10),
        nn.Linear(10, 4),
    ]
    return on.orthogonalize_(nn.Sequential(*layers), on.OrthogonalConfig(scale="row_norms"))


def step(model: nn.Module, x: Tensor) -> list[Tensor]:
    model.zero_grad()
    model(x).square().mean().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_a_training_step_is_the_same_with_few_roots():
    model, x = network(), torch.randn(5, 3, 8, 8)
    output, gradients = model(x), step(model, x)
    on.register_cached(model)
    with Calls() as calls:
        torch.testing.assert_close(model(x), output, rtol=0, atol=1e-6)
    # Groups of 8 in every convolution, and one of 10: two decompositions for 8 layers.
    assert calls.counter["aten._linalg_eigh.default"] == 2
    for got, expected in zip(step(model, x), gradients, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


def test_calls_grow_little_with_depth():
    def total(depth: int, together: bool) -> int:
        model, x = network(depth), torch.randn(2, 3, 8, 8)
        if together:
            on.register_cached(model)
        with Calls() as calls:
            step(model, x)
        plain = on.fold(model)
        for p in plain.parameters():
            p.requires_grad_()
        with Calls() as own:
            step(plain, x)
        return sum(calls.counter.values()) - sum(own.counter.values())

    extra = {together: total(24, together) - total(4, together) for together in (True, False)}
    # Seventeen calls a layer, views and the scale among them.
    assert extra[True] <= 17 * 20 <= extra[False] / 3


def test_nothing_outlives_a_call():
    model, x = network(), torch.randn(2, 3, 8, 8)
    on.register_cached(model)
    first = model(x)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn_like(p))
    assert (model(x) - first).abs().max() > 1e-3
    assert model[0].weight is not model[0].weight  # type: ignore[index]
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes"):
        model(torch.randn(2, 3, 9, 9))
    assert model[0].weight is not model[0].weight  # type: ignore[index]


def test_remove_copy_pickle_fold():
    model, x = network(), torch.randn(2, 3, 8, 8)
    output = model(x)
    handle = on.register_cached(model)
    for other in (copy.deepcopy(model), on.fold(model)):
        torch.testing.assert_close(other(x), output, rtol=0, atol=1e-6)
    assert len(pickle.dumps(on.fold(model))) > 0
    handle.remove()
    with Calls() as calls:
        model(x)
    assert calls.counter["aten._linalg_eigh.default"] == 8


def test_a_copy_of_a_model_that_holds_its_handle_has_one_of_its_own():
    model, x = network(), torch.randn(2, 3, 8, 8)
    model.handle = on.register_cached(model)  # type: ignore[assignment]
    other = copy.deepcopy(model)
    other.handle.remove()  # type: ignore[operator]
    roots = []
    for each in (other, model):
        with Calls() as calls:
            each(x)
        roots.append(calls.counter["aten._linalg_eigh.default"])
    assert roots == [8, 2]  # layer by layer, and one for each size of groups


def test_a_model_without_orthogonal_weights_is_refused():
    with pytest.raises(ValueError, match="no orthogonal weight to cache"):
        on.register_cached(nn.Linear(3, 3))


def test_a_call_within_a_call():
    inner = network()
    on.register_cached(inner)
    outer = nn.Sequential(inner, nn.Linear(4, 2))
    on.register_cached(outer)
    x = torch.randn(2, 3, 8, 8)
    expected = copy.deepcopy(outer)(x)
    torch.testing.assert_close(outer(x), expected, rtol=0, atol=0)
    assert step(outer, x)


def test_a_call_that_ctrl_c_ends_leaves_no_cache_behind():
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    model, x = network(), torch.randn(5, 3, 8, 8)
    handle = on.register_cached(model)
    expected = model(x)
    stop = model[-1].register_forward_hook(interrupt)  # type: ignore[union-attr, operator]
    with pytest.raises(KeyboardInterrupt) as caught:
        model(x)
    stop.remove()
    assert caught.tb is not None  # its frames are there still
    assert model[0].weight is not model[0].weight  # type: ignore[index]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        step(model, x)
        optimizer.step()
    assert not torch.equal(model(x), expected)
    assert len(ACTIVE.get()) == 0
    handle.remove()


def test_a_call_that_ctrl_c_ends_keeps_nothing_of_its_surroundings_alive():
    class Batch:
        """What a training loop holds."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def train() -> weakref.ref[Batch]:
        batch, x = Batch(), torch.randn(5, 3, 8, 8)
        with contextlib.suppress(KeyboardInterrupt):
            model(x)
        return weakref.ref(batch)

    model = network()
    on.register_cached(model)
    model[-1].register_forward_hook(interrupt)  # type: ignore[union-attr, operator]
    batch = train()
    gc.collect()
    assert batch() is None
    assert model[0].weight is not model[0].weight  # type: ignore[index]
    assert len(ACTIVE.get()) == 0


def test_calls_inside_a_context_compute_nothing_that_it_keeps_already():
    model, x = network(), torch.randn(2, 3, 8, 8)
    on.register_cached(model)
    with Calls() as calls, on.cached(model):
        for _ in range(3):
            model(x)
    assert calls.counter["aten._linalg_eigh.default"] == 2  # one for each size of groups


def test_no_grad_and_functional_call_see_their_own_weights():
    model, x = network(), torch.randn(2, 3, 8, 8)
    on.register_cached(model)
    with torch.no_grad():
        assert not model(x).requires_grad
    other = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    expected = copy.deepcopy(model)
    expected.load_state_dict(other)
    torch.testing.assert_close(torch.func.functional_call(model, other, (x,)), expected(x), rtol=0, atol=1e-5)


def test_a_hook_that_fails_before_an_inner_call_leaves_the_outer_one_alone():
    def fail(*_: object) -> None:
        raise ValueError("refused")

    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.inner = on.OrthogonalLinear(6, 6), on.OrthogonalLinear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            weight = self.layer.weight
            with pytest.raises(ValueError, match="refused"):
                self.inner(x)
            assert self.layer.weight is weight
            return x @ weight

    outer = Outer()
    outer.inner.register_forward_pre_hook(fail)
    on.register_cached(outer.inner)
    on.register_cached(outer)
    assert outer(torch.randn(2, 6)).shape == (2, 6)
    assert outer.layer.weight is not outer.layer.weight


def test_a_handle_removed_inside_a_call_leaves_no_cache_behind_the_outer_one():
    inner = nn.Sequential(on.OrthogonalLinear(6, 6), nn.Tanh())
    handle = on.register_cached(inner)
    inner[1].register_forward_hook(lambda *_: handle.remove())
    outer = nn.Sequential(on.OrthogonalLinear(6, 6), inner)
    on.register_cached(outer)
    outer(torch.randn(2, 6))
    for layer in (outer[0], inner[0]):
        assert layer.weight is not layer.weight


@pytest.mark.parametrize("depth", [1, 2])
def test_a_handle_removed_inside_the_outermost_call_leaves_no_cache_behind(depth: int):
    model = nn.Sequential(on.OrthogonalLinear(6, 6), nn.Tanh(), on.OrthogonalLinear(6, 6))
    expected = model(torch.ones(2, 6))
    handle = on.register_cached(model)
    calls = []

    def again(*_: object) -> None:
        calls.append(len(calls))
        handle.remove() if len(calls) == depth else model(torch.ones(2, 6))
        # Gone with the handle, not only unused once the call has ended.
        assert len(ACTIVE.get()) == 0

    hook = model[1].register_forward_hook(again)
    torch.testing.assert_close(model(torch.ones(2, 6)), expected, rtol=0, atol=1e-6)
    hook.remove()
    assert len(calls) >= depth
    assert model[0].weight is not model[0].weight
    model(torch.ones(2, 6))
    assert model[0].weight is not model[0].weight


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("transform", [torch.func.jacrev, torch.func.jacfwd])
def test_jacobians_of_a_registered_model(transform):
    model, x = nn.Sequential(on.OrthogonalLinear(6, 4, scale="learned"), nn.Tanh()), torch.randn(6)
    expected = transform(model)(x)
    on.register_cached(model)
    torch.testing.assert_close(transform(model)(x), expected, rtol=0, atol=1e-6)
