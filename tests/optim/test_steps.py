"""One step against literal formulas, a peer library and torch's own optimizers."""

import warnings

import pytest
import torch
from torch import nn

from optim.problems import OPTIMIZERS, PAIRS, SHAPES, blocks_of, noise, off_manifold, on_manifold
from orthonorm.functional import matrix_layout, project_tangent, riemannian_gradient
from orthonorm.functional.stiefel._retractions import RETRACTIONS
from orthonorm.optim import StiefelAdam, StiefelSGD

with warnings.catch_warnings():
    warnings.simplefilter("ignore", FutureWarning)  # it uses torch.jit.script
    import geoopt


def qf(V):
    """The Q factor with a positive diagonal of R, columns."""
    Q, R = torch.linalg.qr(V)
    return Q * R.diagonal().sign()


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_every_shape_takes_the_step_of_its_groups(pair, case):
    shape, group_size = SHAPES[case]
    metric, retraction = pair
    W = on_manifold(shape, group_size)
    W.grad = noise(shape, 0)
    expected = []
    for V, G in zip(blocks_of(W, group_size), blocks_of(W.grad, group_size), strict=True):
        grad = G if metric is None else riemannian_gradient(V, G, metric)
        expected.append(RETRACTIONS[retraction](V, grad, -0.1))
    optimizer = StiefelSGD([W], 0.1, metric=metric, retraction=retraction, group_size=group_size)
    optimizer.step()
    for V, target in zip(blocks_of(W, group_size), expected, strict=True):
        torch.testing.assert_close(V, target, rtol=0, atol=1e-13)
    assert off_manifold(W, group_size) < 1e-13


@pytest.mark.parametrize(
    ("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)], ids=["plain", "momentum", "nesterov"]
)
def test_a_step_is_geoopts_on_the_transpose(momentum, nesterov):
    # From one buffer, as the two start theirs differently: geoopt's first counts the gradient twice.
    W, b, G = on_manifold((4, 9)), noise((4, 9), 1), noise((4, 9), 2)
    b = project_tangent(W.detach(), b)
    peer = geoopt.ManifoldParameter(W.detach().mT.clone(), manifold=geoopt.EuclideanStiefel())  # pyright: ignore[reportCallIssue]
    ours = StiefelSGD([W], 0.1, momentum=momentum, nesterov=nesterov)
    theirs = geoopt.optim.RiemannianSGD([peer], 0.1, momentum=momentum, nesterov=nesterov)
    if momentum:
        ours.state[W]["momentum_buffer"] = b.clone()
        theirs.state[peer]["momentum_buffer"] = b.mT.clone()
    W.grad, peer.grad = G.clone(), G.mT.clone()
    ours.step()
    theirs.step()
    end = peer.detach().as_subclass(torch.Tensor).mT
    torch.testing.assert_close(W.detach(), end, rtol=0, atol=1e-13)
    if momentum:
        transported = project_tangent(W.detach(), ours.state[W]["momentum_buffer"])
        their_buffer = theirs.state[peer]["momentum_buffer"].as_subclass(torch.Tensor).mT
        torch.testing.assert_close(transported, their_buffer, rtol=0, atol=1e-13)


def test_the_papers_labels():
    # The appendix, in columns: EI+QR is our canonical pair, CI+QR our euclidean one.
    start = on_manifold((4, 9))
    w, g, eta = start.detach().mT, noise((4, 9), 0).mT, 0.1
    ei_qr = qf(w - eta * (g - w @ g.mT @ w))
    ci_qr = qf(w - eta * (g - 0.5 * (w @ w.mT @ g + w @ g.mT @ w)))
    A = g @ w.mT - w @ g.mT
    eye = torch.eye(9, dtype=w.dtype)
    cay_t = torch.linalg.inv(eye + eta / 2 * A) @ (eye - eta / 2 * A) @ w
    plain_qr = qf(w - eta * g)
    for pair, expected in {
        ("canonical", "qr"): ei_qr,
        ("euclidean", "qr"): ci_qr,
        ("canonical", "cayley"): cay_t,
        (None, "qr"): plain_qr,
    }.items():
        W = on_manifold((4, 9))
        W.grad = g.mT.contiguous()
        StiefelSGD([W], eta, metric=pair[0], retraction=pair[1]).step()
        torch.testing.assert_close(W.detach().mT, expected, rtol=0, atol=1e-13, msg=str(pair))


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_momentum_is_the_recursion_of_the_docstring(pair, nesterov):
    metric, retraction = pair
    W = on_manifold((3, 7))
    optimizer = StiefelSGD([W], 0.1, momentum=0.9, nesterov=nesterov, metric=metric, retraction=retraction)
    V, b = W.detach().clone(), torch.zeros(3, 7, dtype=W.dtype)
    for step in range(4):
        W.grad = G = noise((3, 7), step)
        grad = G if metric is None else riemannian_gradient(V, G, metric)
        b = 0.9 * (b if metric is None else project_tangent(V, b)) + grad
        direction = grad + 0.9 * b if nesterov else b
        V = RETRACTIONS[retraction](V, direction, -0.1)
        optimizer.step()
        torch.testing.assert_close(W.detach(), V, rtol=0, atol=1e-12)
        torch.testing.assert_close(optimizer.state[W]["momentum_buffer"], b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("group_size", [None, 2])
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_adam_is_the_recursion_of_the_docstring(pair, group_size):
    metric, retraction = pair
    W = on_manifold((3, 7), group_size)
    optimizer = StiefelAdam([W], 0.1, (0.8, 0.95), 1e-6, metric=metric, retraction=retraction, group_size=group_size)
    blocks = [V.clone() for V in blocks_of(W, group_size)]
    ms, vs = [torch.zeros_like(V) for V in blocks], [0.0] * len(blocks)
    for t in range(1, 5):
        W.grad = noise((3, 7), t)
        for i, (V, G) in enumerate(zip(blocks, blocks_of(W.grad, group_size), strict=True)):
            grad = G if metric is None else riemannian_gradient(V, G, metric)
            ms[i] = 0.8 * (ms[i] if metric is None else project_tangent(V, ms[i])) + 0.2 * grad
            vs[i] = 0.95 * vs[i] + 0.05 * grad.square().mean().item()
            rate = 0.1 / (1 - 0.8**t) / ((vs[i] / (1 - 0.95**t)) ** 0.5 + 1e-6)
            blocks[i] = RETRACTIONS[retraction](V, ms[i], -rate)
        optimizer.step()
        torch.testing.assert_close(W.detach(), torch.cat(blocks), rtol=0, atol=1e-12)
    assert optimizer.state[W]["exp_avg_sq"].tolist() == pytest.approx(vs)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_euclidean_groups_are_torchs_bit_for_bit(name):
    cls, options = OPTIMIZERS[name]
    peer = torch.optim.Adam if cls is StiefelAdam else torch.optim.SGD
    shapes = [(4, 3), (7,), ()]
    ours = [nn.Parameter(noise(s, i, torch.float32)) for i, s in enumerate(shapes)]
    theirs = [nn.Parameter(p.detach().clone()) for p in ours]
    a = cls([{"params": ours, "manifold": False}], 0.1, weight_decay=1e-2, **options)
    b = peer(theirs, 0.1, weight_decay=1e-2, **options)
    for step in range(5):
        for i, (p, q) in enumerate(zip(ours, theirs, strict=True)):
            p.grad = noise(p.shape, 10 * step + i, torch.float32) if i != step else None
            q.grad = None if p.grad is None else p.grad.clone()
        a.step()
        b.step()
        assert all(torch.equal(p, q) for p, q in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_batch_of_shapes_is_each_weight_by_itself(name):
    cls, options = OPTIMIZERS[name]
    shapes = [(4, 9), (3, 3, 3), (4, 9), (10, 6), (9, 4), (4, 3, 3), (9, 4)]

    def run(together: bool) -> list[nn.Parameter]:
        weights = [on_manifold(shape, None, i) for i, shape in enumerate(shapes)]
        groups = [weights] if together else [[weight] for weight in weights]
        optimizers = [cls(group, 0.1, **options) for group in groups]
        for step in range(3):
            for i, weight in enumerate(weights):
                weight.grad = noise(shapes[i], 10 * step + i)
            for optimizer in optimizers:
                optimizer.step()
        return weights

    for a, b in zip(run(True), run(False), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def test_more_weights_than_one_batch_holds():
    weights = [on_manifold((60, 120), None, i, torch.float32) for i in range(40)]
    before = [weight.detach().clone() for weight in weights]
    grads = [1e-2 * noise((60, 120), i, torch.float32) for i in range(40)]
    for weight, grad in zip(weights, grads, strict=True):
        weight.grad = grad
    StiefelSGD(weights, 0.1).step()
    for start, weight, grad in zip(before, weights, grads, strict=True):
        step = project_tangent(start, grad)
        expected = qf((start - 0.1 * step).mT).mT
        torch.testing.assert_close(weight.detach(), expected, rtol=0, atol=1e-6)


def test_channels_last_and_transposed_weights_keep_their_strides():
    W = on_manifold((6, 2, 3, 3))
    last = nn.Parameter(W.detach().clone().to(memory_format=torch.channels_last))
    turned = nn.Parameter(W.detach().flatten(1).mT.contiguous().mT)
    strides = [last.stride(), turned.stride()]
    G = noise((6, 2, 3, 3), 0)
    W.grad, last.grad, turned.grad = G, G.clone(), G.flatten(1)
    StiefelSGD([W, last, turned], 0.1, momentum=0.5, group_size=4).step()
    assert [last.stride(), turned.stride()] == strides
    torch.testing.assert_close(last.detach().contiguous(), W.detach(), rtol=0, atol=1e-15)
    torch.testing.assert_close(turned.detach(), W.detach().flatten(1), rtol=0, atol=1e-15)


def test_layouts_say_what_they_are():
    texts = {case: str(matrix_layout(*SHAPES[case])) for case in ("wide", "tall", "conv2d groups")}
    assert texts == {
        "wide": "4 orthonormal rows of length 9",
        "tall": "4 orthonormal columns of length 9",
        "conv2d groups": "4 groups of rows (5 + 5 + 5 + 5), orthonormal within a group",
    }
