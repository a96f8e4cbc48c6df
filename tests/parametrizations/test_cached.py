"""`cached`: one computation a context, the same values and gradients as without it, and no way to a stale weight."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from orthogonal_layers import free


@pytest.fixture
def model() -> nn.Module:
    return on.orthogonalize_(
        nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 2)),
        on.OrthogonalConfig(scale="row_norms"),
    )


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The labels of the weights computed so far, each by itself or together with others."""
    labels: list[str] = []
    weight_of = on.OrthogonalWeightNorm.weight_of

    def counted(self: on.OrthogonalWeightNorm, rows: Tensor, V: Tensor) -> Tensor:
        labels.append(self.label)
        return weight_of(self, rows, V)

    monkeypatch.setattr(on.OrthogonalWeightNorm, "weight_of", counted)
    return labels


def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad for p in model.parameters() if p.grad is not None]


def test_each_weight_is_computed_once_and_gradients_add_up(model: nn.Module, computed: list[str]):
    xs = torch.randn(3, 4, 6)

    def step() -> None:
        model.zero_grad()
        sum(model(x).square().sum() for x in xs).backward()  # type: ignore[union-attr]

    step()
    expected = [g.clone() for g in gradients(model)]
    assert len(computed) == 6
    computed.clear()
    with on.cached(model):
        step()
    assert sorted(computed) == ["0.weight", "2.weight"]
    assert len(expected) == 8
    for got, want in zip(gradients(model), expected, strict=True):
        torch.testing.assert_close(got, want)


def test_nothing_is_kept_outside(model: nn.Module, computed: list[str]):
    keys = list(model.state_dict())
    with on.cached(model):
        assert model[0].weight is model[0].weight  # type: ignore[index]
        assert list(model.state_dict()) == keys
    computed.clear()
    first = model[0].weight  # type: ignore[index]
    assert model[0].weight is not first  # type: ignore[index]
    assert len(computed) == 2


def test_a_weight_computed_without_a_graph_is_not_used_where_one_is_needed(model: nn.Module):
    with on.cached(model):
        with torch.no_grad():
            assert not model[0].weight.requires_grad  # type: ignore[index]
        with torch.inference_mode():
            assert model[0].weight.is_inference()  # type: ignore[index]
        model(torch.randn(4, 6)).sum().backward()
    assert len(gradients(model)) == len(list(model.parameters()))


def shrink_scale(layer: nn.Module) -> None:
    layer.parametrizations.weight[0].scale.mul_(0.5)  # type: ignore[index, union-attr]


def write_v(layer: nn.Module) -> None:
    layer.parametrizations.weight.original.add_(1)  # type: ignore[union-attr]


def replace_data(layer: nn.Module) -> None:
    V = free(layer)
    V.data = V.data * 2


def assign_weight(layer: nn.Module) -> None:
    layer.weight = torch.randn(6, 6)


def write_weight(layer: nn.Module) -> None:
    layer.weight.zero_()  # type: ignore[union-attr, operator]


CHANGES = [write_v, shrink_scale, replace_data, assign_weight, write_weight]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_inside_raises_and_names_the_weight(model: nn.Module, change: Callable[[nn.Module], None]):
    with on.cached(model), torch.no_grad():
        model(torch.randn(2, 6))
        change(model[0])  # type: ignore[index]
        with pytest.raises(RuntimeError, match=r"^0\.weight was read.*Leave the context"):
            model(torch.randn(2, 6))
    model(torch.randn(2, 6))


def test_an_optimizer_step_inside_raises(model: nn.Module):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with on.cached(model):
        model(torch.randn(2, 6)).sum().backward()
        optimizer.step()
        with pytest.raises(RuntimeError, match="changed in place"):
            model(torch.randn(2, 6))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_a_fused_step_inside_raises_too(model: nn.Module, optimizer: Callable[..., torch.optim.Optimizer]):
    # A fused optimizer counts no versions of what it writes to.
    first, *_, last = model.children()
    ours, other = (optimizer(layer.parameters(), lr=0.1, fused=True) for layer in (first, last))
    with on.cached(model):
        model(torch.randn(2, 6)).sum().backward()
        other.zero_grad()
        other.step()  # which has nothing to step
        model(torch.randn(2, 6))
        ours.step()
        with pytest.raises(RuntimeError, match=r"0\.weight was read.*changed in place"):
            model(torch.randn(2, 6))


def test_a_weight_that_is_frozen_for_one_pass_has_its_gradient_in_the_next(model: nn.Module):
    x = torch.randn(2, 6, requires_grad=True)
    with on.cached(model):
        model.requires_grad_(requires_grad=False)
        model(x).sum().backward()
        model.requires_grad_(requires_grad=True)
        model(x).square().sum().backward()
    found = [p.grad for p in model.parameters()]
    model.zero_grad()
    model(x).square().sum().backward()
    for grad, p in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(grad, p.grad)


def test_another_thread_does_not_see_the_cache(model: nn.Module, computed: list[str]):
    with on.cached(model), ThreadPoolExecutor(1) as pool:
        mine = model[0].weight  # type: ignore[index]
        theirs = pool.submit(lambda: model[0].weight).result(60)  # type: ignore[index]
        assert theirs is not mine
        assert torch.equal(theirs, mine)
    assert computed == ["0.weight", "2.weight", "0.weight"]


def test_threads_that_share_the_context_compute_once(model: nn.Module, computed: list[str]):
    barrier = threading.Barrier(4)

    def read() -> Tensor:
        barrier.wait(60)
        return model[0].weight  # type: ignore[index]

    with on.cached(model), ThreadPoolExecutor(4) as pool:
        weights = [job.result(60) for job in [pool.submit(copy_context().run, read) for _ in range(4)]]
    assert computed == ["0.weight", "2.weight"]
    assert all(weight is weights[0] for weight in weights)


def test_a_context_that_outlives_the_block_sees_no_cache(model: nn.Module):
    with on.cached(model):
        old = model[0].weight  # type: ignore[index]
        context = copy_context()
    assert context.run(lambda: model[0].weight) is not old  # type: ignore[index]
    with torch.no_grad():
        write_v(model[0])  # type: ignore[index]
    assert not torch.equal(context.run(lambda: model[0].weight), old)  # type: ignore[index]


def test_tasks_have_caches_of_their_own(model: nn.Module, computed: list[str]):
    async def read() -> Tensor:
        with on.cached(model):
            first = model[0].weight  # type: ignore[index]
            await asyncio.sleep(0)
            assert model[0].weight is first  # type: ignore[index]
        return first

    async def both() -> list[Tensor]:
        return list(await asyncio.gather(read(), read()))

    first, second = asyncio.run(both())
    assert first is not second
    assert len(computed) == 4


def test_nested_contexts(model: nn.Module, computed: list[str]):
    other = on.OrthogonalLinear(5, 4)
    with on.cached(model):
        outer = model[0].weight  # type: ignore[index]
        with on.cached(other):
            assert model[0].weight is outer  # type: ignore[index]
            assert other.weight is other.weight
        with on.cached(model):
            assert model[0].weight is outer  # type: ignore[index]
        assert model[0].weight is outer  # type: ignore[index]
        assert other.weight is not other.weight


def test_tied_weights_are_computed_once(computed: list[str]):
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 2))
    model[1].weight = model[0].weight
    on.orthogonalize_(model, on.OrthogonalConfig(scale="row_norms"))
    computed.clear()
    with on.cached(model):
        assert model[0].weight is model[1].weight
    assert len(computed) == 1


def test_functional_transforms_pass_by_the_cache(model: nn.Module):
    x = torch.randn(4, 6)
    parameters = {name: p.detach().clone() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return torch.func.functional_call(model, parameters, x).square().sum()

    expected = torch.func.grad(loss)(parameters)
    with on.cached(model):
        model(x)
        got = torch.func.grad(loss)(parameters)
        other = torch.func.functional_call(model, {k: torch.randn_like(p) for k, p in parameters.items()}, x)
        assert not torch.allclose(other, model(x))
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")
@pytest.mark.parametrize("transform", [torch.func.jacrev, torch.func.jacfwd])
def test_a_weight_first_read_inside_a_transform_is_not_kept(model: nn.Module, transform):
    x = torch.randn(4, 6)
    expected = transform(model)(x)
    model(x).square().sum().backward()
    gradients = [p.grad for p in model.parameters()]
    model.zero_grad()
    with on.cached(model):
        torch.testing.assert_close(transform(model)(x), expected)
        model(x).square().sum().backward()
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(p.grad, gradient, rtol=1e-4, atol=1e-5)


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "cached, plain": (lambda: on.cached(nn.Sequential()), ValueError, "Sequential has no orthogonal weight"),
    "cached, no module": (lambda: on.cached(none), TypeError, r"model must be a torch\.nn\.Module; got NoneType"),
    "registered, no module": (lambda: on.register_cached(none), TypeError, r"a torch\.nn\.Module; got NoneType"),
}
none: Any = None


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize(("call", "exception", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_cached_is_refused(call: Callable[[], Any], exception: type[Exception], message: str):
    with pytest.raises(exception, match=message), call():
        raise AssertionError


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_scripted_submodule_is_no_hindrance():
    model = nn.Sequential(on.OrthogonalLinear(8, 4), torch.jit.script(nn.Linear(4, 4)))
    with on.cached(model):
        assert model[0].weight is model[0].weight
    on.register_cached(model)
    assert model(torch.zeros(1, 8)).shape == (1, 4)
    assert [row.weight for row in on.inspect(model).layers] == ["0.weight"]
