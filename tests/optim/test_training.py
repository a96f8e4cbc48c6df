"""Thousands of steps, and problems whose solution is known."""

import pytest
import torch
from torch import nn

from optim.problems import OPTIMIZERS, PAIRS, bound, off_manifold, on_manifold, taken
from orthonorm.functional import haar, project
from orthonorm.optim import Landing, StiefelAdam, StiefelMuon, StiefelSGD

pytestmark = pytest.mark.slow

EACH_RETRACTION = [("euclidean", "qr"), ("canonical", "polar"), ("canonical", "cayley")]
# Every pair with one optimizer and every optimizer with one pair: the two do not meet within a step.
EACH_ALONE = [("momentum", pair) for pair in PAIRS] + [(name, ("canonical", "cayley")) for name in OPTIMIZERS]
EACH_ALONE = list(dict.fromkeys(EACH_ALONE))


@pytest.mark.parametrize(("name", "pair"), EACH_ALONE)
def test_float32_does_not_drift_in_a_thousand_steps(name, pair):
    assert worst_of_steps(name, pair, 1_000) <= bound(OPTIMIZERS[name][0], 1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("pair", EACH_RETRACTION, ids=str)
def test_float32_does_not_drift_in_ten_thousand_steps(pair):
    assert worst_of_steps("momentum", pair, 10_000) <= 1e-5


def worst_of_steps(name: str, pair: tuple[str | None, str], steps: int) -> float:
    """The largest distance from the manifold that weights reach on the way."""
    # A wide weight, groups of a square one and a convolution: all are blocks of 3 rows of 6.
    cls, options = OPTIMIZERS[name]
    shapes = [(3, 6), (6, 6), (3, 2, 3)]
    weights = [on_manifold(s, 3, i, torch.float32) for i, s in enumerate(shapes)]
    optimizer = cls(weights, 0.1, group_size=3, **taken(cls, *pair), **options)
    generator = torch.Generator().manual_seed(0)
    grads = [[torch.randn(s, generator=generator) for s in shapes] for _ in range(101)]
    worst = 0.0
    for step in range(steps):
        for weight, grad in zip(weights, grads[step % 101], strict=True):
            weight.grad = grad
        optimizer.step()
        if step % 100 == 99:
            worst = max(worst, *(off_manifold(weight, 3) for weight in weights))
    return worst


LONG = [(name, pair) for name in ("nesterov", "adam") for pair in PAIRS]
LONG += [("muon", (None, retraction)) for retraction in ("qr", "polar", "cayley")] + [("landing", PAIRS[0])]


@pytest.mark.parametrize(("name", "pair"), LONG)
@pytest.mark.parametrize("shape", [(20, 60), (60, 20)])
def test_float32_does_not_drift_under_long_steps(shape, name, pair):
    cls, options = OPTIMIZERS[name]
    W = on_manifold(shape, None, 0, torch.float32)
    optimizer = cls([W], 1.0, **taken(cls, *pair), **options)
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        W.grad = torch.randn(shape, generator=generator)
        optimizer.step()
    assert off_manifold(W) <= bound(cls, 1e-5)


def train(optimizer, weight, loss, steps: int, final: float) -> None:
    """Minimise with a rate that falls to `final` of its start."""
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, final ** (1 / steps))
    for _ in range(steps):
        optimizer.zero_grad()
        loss(weight).backward()
        optimizer.step()
        scheduler.step()


@pytest.mark.parametrize(("name", "pair"), EACH_ALONE)
def test_dominant_eigenspace(name, pair):
    # min -tr W A W^T: minus the sum of the largest eigenvalues, at their eigenvectors' span.
    cls, options = OPTIMIZERS[name]
    generator = torch.Generator().manual_seed(0)
    Q = haar(8, 8, generator=generator, dtype=torch.float64)
    A = Q.mT @ torch.linspace(0.1, 1.5, 8, dtype=torch.float64).diag() @ Q
    W = on_manifold((3, 8))
    lr = 0.1 if name in ("sgd", "adam") else 0.02
    optimizer = cls([W], lr, **taken(cls, *pair), **options)
    # The step of Adam or Muon is not shorter where the gradient is.
    train(optimizer, W, lambda V: -torch.trace(V @ A @ V.mT), 600, {"adam": 1e-2, "muon": 1e-3}.get(name, 0.5))
    assert torch.trace(W @ A @ W.mT).item() == pytest.approx(1.5 + 1.3 + 1.1, abs=1e-4)
    top = Q[-3:]
    torch.testing.assert_close(W.detach().mT @ W.detach(), top.mT @ top, rtol=0, atol=1e-2)


@pytest.mark.parametrize("cls", [StiefelSGD, StiefelAdam, Landing, StiefelMuon])
@pytest.mark.parametrize("shape", [(3, 8), (8, 3)])
def test_procrustes(cls, shape):
    # The nearest orthonormal matrix to B is its polar factor.
    generator = torch.Generator().manual_seed(1)
    B = torch.randn(shape, generator=generator, dtype=torch.float64)
    W = on_manifold(shape)
    optimizer = cls([W], 0.05)
    train(optimizer, W, lambda V: (V - B).square().sum(), 1000, 1e-3)
    target = project(B) if shape[0] <= shape[1] else project(B.mT).mT
    torch.testing.assert_close(W.detach(), target, rtol=0, atol=1e-4)


def test_case_20_a_network_with_every_kind_of_weight():
    # Wide, tall, grouped and convolution weights in one optimizer, biases beside them.
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(128, 16),
        nn.Tanh(),
        nn.Linear(16, 40),
        nn.Tanh(),
        nn.Linear(40, 3),
    )
    matrices = [p for p in net.parameters() if p.ndim > 1]
    vectors = [p for p in net.parameters() if p.ndim == 1]
    with pytest.warns(UserWarning, match="moved 4 of 4 weights"):
        optimizer = StiefelSGD(
            [
                {"params": matrices[:3]},
                {"params": matrices[3:], "group_size": 2},
                {"params": vectors, "manifold": False, "weight_decay": 1e-4},
            ],
            lr=0.1,
            momentum=0.9,
            nesterov=True,
        )
    x = torch.randn(60, 1, 4, 4)
    y = x.flatten(1)[:, :3].argmax(1)
    losses = []
    for _ in range(150):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert max(map(off_manifold, matrices[:3])) < 1e-5
    assert off_manifold(matrices[3], 2) < 1e-5
