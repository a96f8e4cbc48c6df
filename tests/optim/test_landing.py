"""Landing against its equation, and the distance that it promises."""

import copy
import math
import warnings
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from optim.problems import SHAPES, blocks_of, noise, on_manifold
from orthonorm.functional import check_tangent, haar, project, riemannian_gradient
from orthonorm.optim import Landing


def distances(weight: Tensor, group_size: int | None = None) -> list[float]:
    """|W W^T - I|_F of each group, in float64."""
    blocks = [block.double() for block in blocks_of(weight, group_size)]
    return [torch.linalg.matrix_norm(V @ V.mT - torch.eye(len(V)).double()).item() for V in blocks]


def literal(W: Tensor, b: Tensor, lr: float, attraction: float, eps: float) -> Tensor:
    """A step of the docstring: the skew matrix d x d, and the step of the paper by its quadratic equation."""
    S = W.mT @ b
    P = W @ W.mT - torch.eye(len(W), dtype=W.dtype)
    F = W @ (S - S.mT) / 2 + attraction * P @ W
    d, g = P.norm().item(), F.norm().item()
    half = attraction * d * (1 - d)
    root = (half + math.sqrt(half**2 + g**2 * (0.999 * eps - d))) / g**2
    return W - min(lr, root, 1 / (2 * attraction)) * F


def near(W: Tensor, distance: float, seed: int) -> Tensor:
    """A matrix at a distance |W W^T - I|_F from the manifold."""
    n = len(W)
    generator = torch.Generator().manual_seed(seed)
    E = torch.randn(n, n, generator=generator, dtype=W.dtype)
    s, U = torch.linalg.eigh(torch.eye(n, dtype=W.dtype) + distance * (E + E.mT) / (E + E.mT).norm())
    return (U * s.sqrt()) @ U.mT @ W


@pytest.mark.parametrize("lr", [0.01, 1e6], ids=["usual", "safe"])
@pytest.mark.parametrize("case", SHAPES)
def test_a_step_is_that_of_the_paper(case: str, lr: float):
    shape, group_size = SHAPES[case]
    W = on_manifold(shape, group_size)
    optimizer = Landing([W], lr, momentum=0.5, attraction=0.7, eps=0.3, group_size=group_size)
    blocks = [V.clone() for V in blocks_of(W, group_size)]
    buffers = [torch.zeros_like(V) for V in blocks]
    for step in range(4):
        W.grad = noise(shape, step)
        for i, G in enumerate(blocks_of(W.grad, group_size)):
            buffers[i] = 0.5 * buffers[i] + G
            blocks[i] = literal(blocks[i], buffers[i], lr, 0.7, 0.3)
        optimizer.step()
        for V, target in zip(blocks_of(W, group_size), blocks, strict=True):
            torch.testing.assert_close(V, target, rtol=0, atol=1e-11)


def test_nesterov_looks_ahead():
    W = on_manifold((3, 7))
    optimizer = Landing([W], 0.1, momentum=0.8, nesterov=True)
    V, b = W.detach().clone(), torch.zeros(3, 7, dtype=W.dtype)
    for step in range(3):
        W.grad = G = noise((3, 7), step)
        b = 0.8 * b + G
        V = literal(V, G + 0.8 * b, 0.1, 1.0, 0.5)
        optimizer.step()
        torch.testing.assert_close(W.detach(), V, rtol=0, atol=1e-12)


def test_the_field_on_the_manifold_is_half_the_canonical_gradient_and_tangent():
    W = on_manifold((4, 9))
    before, G = W.detach().clone(), noise((4, 9), 0)
    W.grad = G
    Landing([W], 1e-3).step()
    field = (before - W.detach()) / 1e-3
    torch.testing.assert_close(field, riemannian_gradient(before, G, "canonical") / 2, rtol=0, atol=1e-11)
    assert check_tangent(before, field - (field @ before.mT + before @ field.mT) @ before / 2).ok


@pytest.mark.parametrize("attraction", [0.1, 1.0, 30.0])
@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("eps", [0.01, 0.5, 0.95])
def test_no_step_is_so_long_that_it_leaves_the_distance(eps: float, share: float, size: float, attraction: float):
    for seed in range(5):
        for n, d in ((1, 3), (3, 5), (6, 6)):
            start = near(
                haar(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), share * eps, seed
            )
            W = nn.Parameter(start)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                optimizer = Landing([W], 1e9, attraction=attraction, eps=eps)
            W.grad = size * noise((n, d), seed)
            optimizer.step()
            assert distances(W)[0] <= eps * (1 + 1e-9)


@pytest.mark.parametrize(("shape", "group_size"), [((6, 10), None), ((10, 6), None), ((9, 4), 3)])
@pytest.mark.parametrize("lr", [0.05, 1e9])
def test_float32_stays_within_the_distance_under_gradients_of_any_size(shape, group_size, lr: float):
    W = on_manifold(shape, group_size, dtype=torch.float32)
    optimizer = Landing([W], lr, momentum=0.95, eps=0.2, group_size=group_size)
    moved = 0.0
    for step in range(300):
        W.grad = 10.0 ** (step % 13 - 6) * noise(shape, step, torch.float32)
        before = W.detach().clone()
        optimizer.step()
        moved = max(moved, (W.detach() - before).abs().max().item())
        assert max(distances(W, group_size)) <= 0.2
    assert moved > 1e-3


def test_a_gradient_near_the_largest_number_is_a_safe_step_too():
    W = on_manifold((3, 5), dtype=torch.float32)
    before = W.detach().clone()
    W.grad = 1e36 * noise((3, 5), 0, torch.float32)
    Landing([W], 0.1).step()
    assert distances(W)[0] <= 0.5
    assert (W - before).abs().max() > 0.1


def test_without_a_gradient_it_lands():
    W = nn.Parameter(near(on_manifold((4, 9)).detach(), 0.4, 0))
    optimizer, seen = Landing([W], 0.2), []
    for _ in range(40):
        W.grad = torch.zeros_like(W)
        optimizer.step()
        seen += distances(W)
    assert all(b < a for a, b in pairwise(seen[:20]))
    assert seen[-1] < 1e-6


@pytest.mark.parametrize("size", [1e-3, 0.3, 3.0, 1e3])
@pytest.mark.parametrize("shape", [(4, 9), (40, 40)])
def test_a_weight_that_was_moved_away_is_put_back_before_its_step(shape: tuple[int, int], size: float):
    W, other = on_manifold(shape), nn.Parameter(near(on_manifold(shape, seed=1).detach(), 0.3, 0))
    optimizer = Landing([W, other], 0.01)
    with torch.no_grad():
        W.copy_(size * noise(shape, 0))
    target, unmoved = literal(project(W.detach()), noise(shape, 1), 0.01, 1.0, 0.5), other.detach().clone()
    W.grad, other.grad = noise(shape, 1), noise(shape, 2)
    optimizer.step()
    torch.testing.assert_close(W.detach(), target, rtol=0, atol=1e-9)
    torch.testing.assert_close(other.detach(), literal(unmoved, noise(shape, 2), 0.01, 1.0, 0.5), rtol=0, atol=1e-12)


def test_a_weight_that_was_set_to_zero_stays_where_it_is():
    W = on_manifold((4, 9))
    optimizer = Landing([W], 0.1)
    with torch.no_grad():
        W.zero_()
    W.grad = noise((4, 9), 0)
    optimizer.step()
    assert torch.equal(W, torch.zeros_like(W))


@pytest.mark.parametrize("case", SHAPES)
def test_project_puts_each_group_on_the_manifold(case: str):
    shape, group_size = SHAPES[case]
    W = on_manifold(shape, group_size)
    bias = nn.Parameter(torch.ones(3))
    optimizer = Landing([{"params": [W], "group_size": group_size}, {"params": [bias], "manifold": False}], 0.1)
    W.grad = noise(shape, 0)
    optimizer.step()
    nearest = [project(V) for V in blocks_of(W, group_size)]
    assert max(on.orthogonality_error(optimizer).values()) > 1e-6 or min(shape) == 1
    optimizer.project_()
    for V, target in zip(blocks_of(W, group_size), nearest, strict=True):
        torch.testing.assert_close(V, target, rtol=0, atol=1e-14)
    assert max(on.orthogonality_error(optimizer).values()) < 1e-13
    assert torch.equal(bias, torch.ones(3))


def test_project_of_a_stack():
    W = nn.Parameter(torch.stack([on_manifold((4, 3), seed=i).detach() for i in range(3)]))
    optimizer = Landing([W], 0.1, stacked=True)
    W.grad = noise((3, 4, 3), 0)
    optimizer.step()
    nearest = torch.stack([project(part.mT).mT for part in W.detach()])
    optimizer.project_()
    torch.testing.assert_close(W.detach(), nearest, rtol=0, atol=1e-14)


def test_a_new_one_moves_what_is_beyond_eps_and_nothing_else():
    inside, beyond = (nn.Parameter(near(on_manifold((4, 9)).detach(), d, 0)) for d in (0.19, 0.21))
    kept, nearest = copy.deepcopy(inside), project(beyond.detach())
    with pytest.warns(UserWarning, match="moved 1 of 2 weights"):
        Landing([inside, beyond], 0.1, eps=0.2)
    assert torch.equal(inside, kept)
    torch.testing.assert_close(beyond.detach(), nearest, rtol=0, atol=1e-14)
