"""What every torch optimizer promises, and what these promise on top."""

import copy
import io
import warnings

import pytest
import torch
from torch import nn

from optim.problems import OPTIMIZERS, WAYS, bound, noise, off_manifold, on_manifold, taken
from orthonorm.functional import project
from orthonorm.optim import StiefelAdam, StiefelSGD


def mixed(name: str, **options):
    """Two weights on the manifold, one off, one without gradients at first; and their optimizer."""
    cls, more = OPTIMIZERS[name]
    weights = [
        on_manifold((7, 9), 3, 0, torch.float32),
        on_manifold((9, 4), None, 1, torch.float32),
        on_manifold((4, 2, 3), None, 2, torch.float32),
    ]
    bias = nn.Parameter(torch.ones(5))
    groups = [
        {"params": weights[:1], "group_size": 3},
        {"params": weights[1:], **taken(cls, "canonical", "cayley"), "lr": 0.05},
        {"params": [bias], "manifold": False, "weight_decay": 0.1},
    ]
    return [*weights, bias], cls(groups, lr=0.1, **more, **options)


def advance(params, optimizer, start, stop, skip=None):
    """Some steps with gradients that depend on the step only."""
    for step in range(start, stop):
        for i, param in enumerate(params):
            param.grad = noise(param.shape, 10 * step + i, param.dtype)
            if (step, i) == skip:
                param.grad = None
        optimizer.step()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_resumed_run_is_bit_equal(name):
    params, optimizer = mixed(name)
    advance(params, optimizer, 0, 3, skip=(1, 0))
    file = io.BytesIO()
    torch.save({"params": [p.detach() for p in params], "optimizer": optimizer.state_dict()}, file)
    advance(params, optimizer, 3, 6)

    fresh, other = mixed(name)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    with torch.no_grad():
        for param, value in zip(fresh, saved["params"], strict=True):
            param.copy_(value)
    other.load_state_dict(saved["optimizer"])
    advance(fresh, other, 3, 6)
    assert all(torch.equal(a, b) for a, b in zip(params, fresh, strict=True))
    ours, theirs = optimizer.state_dict(), other.state_dict()
    assert ours["param_groups"] == theirs["param_groups"]
    for index, state in ours["state"].items():
        for key, value in state.items():
            assert torch.equal(value, theirs["state"][index][key]), (index, key)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_new_optimizer_over_trained_weights_leaves_them_alone(name):
    params, optimizer = mixed(name)
    advance(params, optimizer, 0, 20)
    before = [param.detach().clone() for param in params]
    cls, options = OPTIMIZERS[name]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        cls([{"params": params[:1], "group_size": 3}, {"params": params[1:3]}], **options)
    assert not told
    assert all(torch.equal(a, b) for a, b in zip(params, before, strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_deepcopy_goes_on_equal(name):
    params, optimizer = mixed(name)
    advance(params, optimizer, 0, 2)
    twins, twin = copy.deepcopy((params, optimizer))
    advance(params, optimizer, 2, 4)
    advance(twins, twin, 2, 4)
    assert all(torch.equal(a, b) for a, b in zip(params, twins, strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gradients_are_left_alone_and_missing_ones_skipped(name):
    params, optimizer = mixed(name)
    advance(params, optimizer, 0, 1)
    before = [param.detach().clone() for param in params]
    grads = [noise(param.shape, i, param.dtype) for i, param in enumerate(params)]
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad.clone()
    params[1].grad = None
    state = {key: value.clone() for key, value in optimizer.state[params[1]].items()}
    optimizer.step()
    assert torch.equal(params[1], before[1])
    assert all(torch.equal(optimizer.state[params[1]][key], value) for key, value in state.items())
    for i in (0, 2, 3):
        torch.testing.assert_close(params[i].grad, grads[i], rtol=0, atol=0)
        assert not torch.equal(params[i], before[i])


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_closures(name):
    params, optimizer = mixed(name)
    twins, twin = mixed(name)
    target = noise((7, 9), 5, torch.float32)

    def loss_of(weights):
        return (weights[0] - target).square().sum() + sum(w.sum() for w in weights[1:])

    def closure():
        optimizer.zero_grad()
        loss = loss_of(params)
        loss.backward()
        return loss

    before = loss_of(params).item()
    with torch.no_grad():
        assert optimizer.step(closure).item() == pytest.approx(before)
    loss_of(twins).backward()
    assert twin.step() is None
    assert all(torch.equal(a, b) for a, b in zip(params, twins, strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_schedulers(name):
    params, optimizer = mixed(name)
    twins, twin = mixed(name)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    for step in range(3):
        advance(params, optimizer, step, step + 1)
        scheduler.step()
        advance(twins, twin, step, step + 1)
        for group in twin.param_groups:
            group["lr"] *= 0.5
    assert [group["lr"] for group in optimizer.param_groups] == [0.0125, 0.00625, 0.0125]
    assert all(torch.equal(a, b) for a, b in zip(params, twins, strict=True))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_rate_as_a_tensor(name, shape):
    cls, options = OPTIMIZERS[name]
    results = []
    for lr in (0.25, torch.full(shape, 0.25)):
        W = on_manifold((3, 5))
        optimizer = cls([W], lr, **options)
        advance([W], optimizer, 0, 3)
        results.append(W.detach())
    torch.testing.assert_close(*results, rtol=0, atol=1e-14)


def test_groups_can_be_added_later():
    W = on_manifold((3, 5))
    optimizer = StiefelSGD([W], 0.1)
    late = nn.Parameter(torch.ones(2, 4))
    group = {"params": late, "retraction": "polar"}
    with pytest.warns(UserWarning, match=r"\b1 of 1\b.*\b4"):
        optimizer.add_param_group(group)
    assert group == {"params": late, "retraction": "polar"}
    assert optimizer.param_groups[1]["metric"] == "euclidean"
    assert off_manifold(late) < 1e-6


def test_a_start_off_the_manifold_is_projected_and_said_so():
    V, on, bias = noise((7, 9), 0, torch.float32), on_manifold((3, 5)), nn.Parameter(torch.ones(4))
    W, kept = nn.Parameter(V.clone()), on.detach().clone()
    with pytest.warns(UserWarning, match="StiefelSGD moved 1 of 2 weights"):
        StiefelSGD([{"params": [W, on], "group_size": 4}, {"params": [bias], "manifold": False}])
    expected = torch.cat([project(V[:4]), project(V[4:])])
    torch.testing.assert_close(W.detach(), expected, rtol=0, atol=1e-6)
    assert torch.equal(on, kept)
    assert torch.equal(bias, torch.ones(4))


def test_torchs_orthogonal_start_is_left_alone():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for shape in ((64, 128), (128, 64), (300, 300), (32, 16, 3, 3)):
            W = nn.Parameter(nn.init.orthogonal_(torch.empty(shape)))
            before = W.detach().clone()
            StiefelSGD([W])
            assert torch.equal(W, before)
    assert not told


@pytest.mark.parametrize(("cls", "options"), WAYS.values(), ids=WAYS)
def test_a_gradient_that_is_not_finite_spoils_its_group_only(cls, options):
    W, twin = (on_manifold((7, 9), 3) for _ in range(2))
    for weight, bad in ((W, True), (twin, False)):
        optimizer = cls([weight], 0.1, group_size=3, **options)
        weight.grad = noise((7, 9), 0)
        if bad:
            weight.grad[4, 1] = torch.nan
        optimizer.step()
        for _ in range(2):  # the group is NaN from here on, and the others go on
            weight.grad = noise((7, 9), 1)
            optimizer.step()
    assert W[3:5].isnan().all()
    rest = [0, 1, 2, 5, 6]
    torch.testing.assert_close(W[rest].detach(), twin[rest].detach(), rtol=0, atol=1e-13)


@pytest.mark.parametrize(("cls", "options"), WAYS.values(), ids=WAYS)
def test_a_zero_gradient_moves_nothing(cls, options):
    W = on_manifold((3, 7))
    before = W.detach().clone()
    optimizer = cls([W], 0.1, **options)
    for _ in range(3):
        W.grad = torch.zeros_like(W)
        optimizer.step()
    torch.testing.assert_close(W.detach(), before, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_weight_without_entries(name):
    cls, options = OPTIMIZERS[name]
    W, empty = on_manifold((3, 5)), nn.Parameter(torch.zeros(0, 4))
    optimizer = cls([W, empty], 0.1, **options)
    W.grad, empty.grad = noise((3, 5), 0), torch.zeros(0, 4)
    optimizer.step()
    assert off_manifold(W) < bound(cls, 1e-13)


def test_a_changed_weight_cannot_carry_a_stale_buffer_off_the_tangent_space():
    W = on_manifold((3, 7))
    optimizer = StiefelSGD([W], 0.1, momentum=0.9)
    advance([W], optimizer, 0, 2)
    with torch.no_grad():
        W.copy_(on_manifold((3, 7), seed=9))
    before = W.detach().clone()
    advance([W], optimizer, 2, 3)
    b = optimizer.state[W]["momentum_buffer"]
    assert (b @ before.mT + before @ b.mT).abs().max() < 1e-13


def test_adam_keeps_one_second_moment_a_group():
    W = on_manifold((7, 9), 3)
    optimizer = StiefelAdam([W], 0.1, group_size=3)
    advance([W], optimizer, 0, 2)
    state = optimizer.state[W]
    assert {key: tuple(value.shape) for key, value in state.items()} == {
        "step": (),
        "exp_avg": (7, 9),
        "exp_avg_sq": (3,),
    }
    assert state["step"].item() == 2
