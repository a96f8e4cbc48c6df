"""`register_norm_keeping`: |V| stays, and W goes where a loop written by hand takes it."""

import copy
import io
from collections.abc import Callable
from functools import partial
from typing import Any

import accelerate
import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from orthogonal_layers import KINDS, Kind, free, name_of, polar, weight

OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], float]] = {
    "SGD": (torch.optim.SGD, 0.1),
    "momentum": (partial(torch.optim.SGD, momentum=0.9, weight_decay=1e-2), 0.05),
    "Adam": (torch.optim.Adam, 0.05),
    "AdamW": (partial(torch.optim.AdamW, weight_decay=0.1), 0.05),
}
GENERATOR = torch.Generator().manual_seed(0)
X, Y = (torch.randn(64, size, dtype=torch.float64, generator=GENERATOR) for size in (12, 3))


def network(dtype: torch.dtype = torch.float64) -> Any:
    torch.manual_seed(0)
    layers = [on.OrthogonalLinear(12, 8, dtype=dtype), nn.Tanh(), on.OrthogonalLinear(8, 6, dtype=dtype)]
    return nn.Sequential(*layers, nn.Linear(6, 3, dtype=dtype))


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: int, watch: Callable[[], None]) -> None:
    dtype = next(net.parameters()).dtype
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(net(X.to(dtype)), Y.to(dtype)).backward()
        optimizer.step()
        watch()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("make", "lr"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_the_norm_stays_to_rounding_over_fifty_steps(make: Callable[..., Any], lr: float, dtype: torch.dtype):
    net = network(dtype)
    optimizer = make(on.param_groups(net), lr=lr)
    first = [float(free(net[i]).detach().double().norm()) for i in (0, 2)]
    start = [weight(net[i]).detach().clone() for i in (0, 2)]
    off: list[float] = []
    on.register_norm_keeping(optimizer, net)

    def watch() -> None:
        norms = [float(free(net[i]).detach().double().norm()) for i in (0, 2)]
        off.extend(abs(norm / before - 1) for norm, before in zip(norms, first, strict=True))

    train(net, optimizer, 50, watch)
    assert max(off) < 2 * torch.finfo(dtype).eps
    assert all(torch.dist(weight(net[i]), W) > 0.1 for i, W in zip((0, 2), start, strict=True))


@pytest.mark.parametrize(("make", "lr"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_handle_that_is_removed_keeps_nothing(make: Callable[..., Any], lr: float):
    net = network()
    optimizer = make(net.parameters(), lr=lr)
    size = float(free(net[0]).detach().norm())
    on.register_norm_keeping(optimizer, net).remove()
    train(net, optimizer, 50, lambda: None)
    assert abs(float(free(net[0]).detach().norm()) / size - 1) > 1e-3


def gradient(V: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Of the mean square loss of the polar factor of V, by finite differences."""
    step, found = 1e-6, torch.zeros_like(V)
    for i in range(V.shape[0]):
        for j in range(V.shape[1]):
            losses = []
            for sign in (1, -1):
                moved = V.clone()
                moved[i, j] += sign * step
                losses.append(nn.functional.mse_loss(x @ polar(moved, center=False).T, y))
            found[i, j] = (losses[0] - losses[1]) / (2 * step)
    return found


def sgd_by_hand(V: Tensor, steps: int, lr: float) -> Tensor:
    norm, buffer = V.norm(), torch.zeros_like(V)
    for _ in range(steps):
        buffer = 0.9 * buffer + gradient(V, X, Y)
        V = V - lr * buffer
        V = V * norm / V.norm()
    return V


def adam_by_hand(V: Tensor, steps: int, lr: float) -> Tensor:
    norm, mean, square = V.norm(), torch.zeros_like(V), torch.zeros_like(V)
    for t in range(1, steps + 1):
        g = gradient(V, X, Y)
        mean, square = 0.9 * mean + 0.1 * g, 0.999 * square + 0.001 * g * g
        V = V - lr * (mean / (1 - 0.9**t)) / ((square / (1 - 0.999**t)).sqrt() + 1e-8)
        V = V * norm / V.norm()
    return V


@pytest.mark.parametrize(
    ("make", "by_hand", "lr"),
    [(partial(torch.optim.SGD, momentum=0.9), sgd_by_hand, 2.0), (torch.optim.Adam, adam_by_hand, 0.1)],
    ids=["momentum", "Adam"],
)
def test_w_goes_where_a_loop_by_hand_takes_it(make: Any, by_hand: Callable[[Tensor, int, float], Tensor], lr: float):
    layer = on.orthogonal_weight_norm(nn.Linear(12, 3, bias=False, dtype=torch.float64), center=False)
    V = free(layer).detach().clone()
    optimizer = make([free(layer)], lr=lr)
    on.register_norm_keeping(optimizer, layer)
    train(layer, optimizer, 10, lambda: None)
    torch.testing.assert_close(free(layer).detach(), by_hand(V, 10, lr), rtol=0, atol=1e-6)


@pytest.mark.slow
def test_the_step_of_w_stays_where_v_would_grow():
    # Targets that no weight fits: the gradient keeps its size, and only |V| decides how far W moves.
    moved = {}
    for keep in (False, True):
        torch.manual_seed(0)
        layer = on.renormalize_(on.OrthogonalLinear(8, 4, bias=False, dtype=torch.float64), norm=1.0)
        optimizer = torch.optim.SGD([free(layer)], lr=0.3)
        if keep:
            on.register_norm_keeping(optimizer, layer)
        found = []
        for _ in range(200):
            before = weight(layer).detach()
            optimizer.zero_grad()
            weight(layer).mul(torch.randn(4, 8, dtype=torch.float64)).sum().backward()
            optimizer.step()
            found.append(float(torch.dist(weight(layer).detach(), before)))
        moved[keep] = sum(found[-50:]) / sum(found[:5]) / 10
    assert moved[True] == pytest.approx(1.0, rel=0.3)
    assert moved[False] < 0.3


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_every_kind_of_layer_is_rescaled_and_the_rest_is_left(kind: Kind):
    layer = kind.build(dtype=torch.float64)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    other = copy.deepcopy(layer)
    on.register_norm_keeping(optimizer, layer)
    size = free(layer).detach().norm()
    plain = torch.optim.SGD(other.parameters(), lr=0.5)
    x = torch.randn(kind.shape, dtype=torch.float64)
    for net, stepper in ((layer, optimizer), (other, plain)):
        net(x).square().mul(torch.linspace(0, 1, net(x).numel(), dtype=torch.float64).view_as(net(x))).sum().backward()
        stepper.step()
    torch.testing.assert_close(free(layer).detach().norm(), size, rtol=1e-12, atol=0)
    torch.testing.assert_close(free(layer) / size, free(other) / free(other).norm(), rtol=0, atol=1e-12)
    if layer.bias is not None:
        assert torch.equal(layer.bias, other.bias)


def test_a_padding_row_stays_and_a_shared_v_is_rescaled():
    table = nn.Embedding(6, 8, padding_idx=2)
    with torch.no_grad():
        table.weight[2] = 7.0
    head = nn.Linear(8, 6)
    on.orthogonalize_(table, filter_fn=lambda *_: True)
    twin = on.OrthogonalLinear(8, 4)
    model: Any = nn.ModuleList([table, head, twin, on.OrthogonalLinear(8, 4)])
    model[3].parametrizations.weight.original = twin.parametrizations.weight.original  # type: ignore[union-attr]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    on.register_norm_keeping(optimizer, model)
    size = float(free(twin).detach().norm())
    (table(torch.arange(6)).square().mul(torch.arange(8)).sum() + twin(torch.ones(1, 8)).square().sum()).backward()
    optimizer.step()
    assert torch.equal(free(table)[2], torch.full((8,), 7.0))
    assert float(free(twin).detach().norm()) == pytest.approx(size, rel=1e-6)


def test_a_v_that_the_optimizer_does_not_hold_is_left_alone():
    net = network()
    optimizer = torch.optim.SGD(net[0].parameters(), lr=0.1)
    on.register_norm_keeping(optimizer, net)
    with torch.no_grad():
        free(net[2]).mul_(3.0)
    before = free(net[2]).detach().clone()
    train(net, optimizer, 1, lambda: None)
    assert torch.equal(free(net[2]), before)


def test_a_folded_model_is_left_alone():
    net = network()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    on.register_norm_keeping(optimizer, net)
    size = float(weight(on.fold_(net)[0]).detach().norm())  # type: ignore[index]
    train(net, optimizer, 5, lambda: None)
    assert abs(float(weight(net[0]).detach().norm()) / size - 1) > 1e-3


def zero() -> Any:
    layer = on.OrthogonalLinear(8, 4)
    with torch.no_grad():
        free(layer).zero_()
    return layer


def of(layer: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(layer.parameters(), lr=0.1)


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "no optimizer": (lambda: on.register_norm_keeping("SGD", zero()), TypeError, "torch.optim.Optimizer; got str"),  # type: ignore[arg-type]
    "no module": (lambda: on.register_norm_keeping(of(zero()), "net"), TypeError, "torch.nn.Module; got str"),  # type: ignore[arg-type]
    "another model's": (
        lambda: on.register_norm_keeping(of(zero()), network()),
        ValueError,
        "must hold a V of the model",
    ),
    "whole steps": (
        lambda: on.register_norm_keeping(torch.optim.LBFGS((net := network()).parameters()), net),
        TypeError,
        "got LBFGS",
    ),
    "zero": (lambda: on.register_norm_keeping(of(layer := zero()), layer), ValueError, "^weight must have a finite V"),
    "meta": (
        lambda: on.register_norm_keeping(of(layer := on.OrthogonalLinear(8, 4, device="meta")), layer),
        ValueError,
        "weight is on the meta device",
    ),
}


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize(("call", "exception", "match"), WRONG.values(), ids=WRONG)
def test_wrong_inputs_are_refused(call: Callable[[], Any], exception: type[Exception], match: str):
    with pytest.raises(exception, match=match):
        call()


@pytest.mark.parametrize("register_first", [True, False], ids=["registered first", "loaded first"])
@pytest.mark.parametrize(("make", "lr"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_a_resumed_run_is_equal_bit_for_bit(make: Callable[..., Any], lr: float, register_first: bool):
    def begin() -> tuple[Any, torch.optim.Optimizer]:
        net = network(torch.float32)
        return net, make(on.param_groups(net), lr=lr)

    whole, optimizer = begin()
    on.register_norm_keeping(optimizer, whole)
    train(whole, optimizer, 20, lambda: None)
    model_file, optimizer_file = io.BytesIO(), io.BytesIO()
    torch.save(whole.state_dict(), model_file)
    torch.save(optimizer.state_dict(), optimizer_file)
    train(whole, optimizer, 20, lambda: None)

    resumed, optimizer = begin()
    on.renormalize_(resumed, norm=7.0)
    if register_first:
        on.register_norm_keeping(optimizer, resumed)
    for target, file in ((resumed, model_file), (optimizer, optimizer_file)):
        file.seek(0)
        target.load_state_dict(torch.load(file))
    if not register_first:
        on.register_norm_keeping(optimizer, resumed)
    train(resumed, optimizer, 20, lambda: None)
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(resumed.state_dict()[name], tensor, rtol=0, atol=0)


def test_registered_again_it_keeps_the_norm_of_then():
    net = network()
    optimizer = torch.optim.SGD(on.param_groups(net), lr=0.1)
    on.register_norm_keeping(optimizer, net).remove()
    on.renormalize_(net, norm=3.0)
    on.register_norm_keeping(optimizer, net)
    train(net, optimizer, 3, lambda: None)
    assert [layer.v_norm for layer in on.inspect(net).layers] == pytest.approx([3.0, 3.0])


@pytest.mark.parametrize("how", ["renormalize_", "checkpoint"])
def test_a_norm_that_is_set_between_two_steps_is_kept(how: str):
    net, other = network(), on.renormalize_(network(), norm=3.0)
    optimizer = torch.optim.SGD(on.param_groups(net), lr=0.1, momentum=0.9)
    on.register_norm_keeping(optimizer, net)
    train(net, optimizer, 2, lambda: None)
    if how == "renormalize_":
        on.renormalize_(net, norm=3.0)
    else:
        net.load_state_dict(other.state_dict())
    norms: list[float] = []
    train(net, optimizer, 3, lambda: norms.extend(layer.v_norm for layer in on.inspect(net).layers))
    assert norms == pytest.approx([3.0] * 6)


def test_the_optimizer_inside_a_wrapper_keeps_the_norm():
    net = network(torch.float32)
    first = [layer.v_norm for layer in on.inspect(net).layers]
    accelerator = accelerate.Accelerator(cpu=True)
    wrapped: Any = accelerator.prepare(torch.optim.Adam(on.param_groups(net), lr=0.05))
    problems: list[str] = []
    on.register_norm_keeping(wrapped, net)
    on.OrthogonalityHook(net, lambda name, *_: problems.append(name), every=1).attach(wrapped)
    train(net, wrapped, 3, lambda: None)
    assert [layer.v_norm for layer in on.inspect(net).layers] == pytest.approx(first, rel=1e-6)
    assert len(problems) == 3 * 2 * 4


def test_a_group_that_is_added_later_is_kept_from_its_first_step_on():
    net = network()
    optimizer = torch.optim.SGD(net[0].parameters(), lr=1.0)
    on.register_norm_keeping(optimizer, net)
    optimizer.add_param_group({"params": list(net[2].parameters())})
    norms: list[float] = []
    train(net, optimizer, 10, lambda: norms.append(on.inspect(net).layers[1].v_norm))
    assert norms == pytest.approx([norms[0]] * 10)


def test_freezing_a_layer_leaves_each_other_norm_to_its_own_layer():
    net = network()
    on.renormalize_(net, norm=1.0)
    with torch.no_grad():
        free(net[2]).mul_(100)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    on.register_norm_keeping(optimizer, net)
    net[0].requires_grad_(False)
    optimizer.param_groups[0]["params"] = [p for p in net.parameters() if p.requires_grad]
    train(net, optimizer, 3, lambda: None)
    assert [layer.v_norm for layer in on.inspect(net).layers] == pytest.approx([1.0, 100.0])


def test_a_zero_v_that_is_added_later_stays_a_number():
    net = network()
    optimizer = torch.optim.SGD(net[0].parameters(), lr=0.1)
    on.register_norm_keeping(optimizer, net)
    with torch.no_grad():
        free(net[2]).zero_()
    optimizer.add_param_group({"params": list(net[2].parameters()), "lr": 0.0})
    train(net, optimizer, 2, lambda: None)
    assert float(free(net[2]).detach().norm()) == 0
