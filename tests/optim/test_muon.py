"""StiefelMuon: the direction is the steepest, by a dual that another solver minimises; and the step is its equation."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from optim.problems import SHAPES, blocks_of, noise, off_manifold, on_manifold
from orthonorm.functional import check_metric, check_retraction, check_tangent, haar, project, project_tangent
from orthonorm.functional.stiefel._retractions import RETRACTIONS
from orthonorm.optim import StiefelMuon
from orthonorm.optim._steepest_tangent import steepest_tangent

KINDS = ("gauss", "rank one", "decaying", "mostly normal", "tangent")


def problem(n: int, d: int, kind: str, seed: int = 0) -> tuple[Tensor, Tensor]:
    """A point on the manifold and a gradient there."""
    generator = torch.Generator().manual_seed(seed)
    W = haar(n, d, generator=generator, dtype=torch.float64)
    G = torch.randn(n, d, generator=generator, dtype=torch.float64)
    if kind == "rank one":
        G = G[:, :1] @ torch.randn(1, d, generator=generator, dtype=torch.float64)
    if kind == "decaying":
        G = haar(n, n, generator=generator, dtype=torch.float64) @ (torch.logspace(0, -4, n).double()[:, None] * G)
    if kind == "mostly normal":
        G = G + 100 * (G @ G.mT) @ W
    return W, project_tangent(W, G) if kind == "tangent" else G


def solve(W: Tensor, G: Tensor, tolerance: float) -> Tensor:
    return steepest_tangent(W[None], G[None], torch.zeros(1, 1, 1, dtype=W.dtype), tolerance)[0]


def least_nuclear_norm(W: Tensor, G: Tensor) -> float:
    """The dual by scipy: the least |G + S W|_* over symmetric S, smoothed less and less, its derivative by SVD."""
    n = len(W)
    rows, columns = torch.tril_indices(n, n)

    def value(x: np.ndarray, smoothing: float) -> tuple[float, np.ndarray]:
        half = torch.zeros(n, n, dtype=torch.float64)
        half[rows, columns] = torch.from_numpy(x)
        U, s, Vt = torch.linalg.svd(G + (half + half.mT) @ W, full_matrices=False)
        smooth = (s**2 + smoothing**2).sqrt()
        slope = (U * (s / smooth)) @ Vt @ W.mT
        return smooth.sum().item(), (slope + slope.mT)[rows, columns].numpy()

    start = -(G @ W.mT + W @ G.mT) / 4
    start.diagonal().mul_(0.5)
    x, scale = start[rows, columns].numpy(), G.abs().max().item()
    for power in range(9):
        x = minimize(value, x, (scale * 10.0**-power,), jac=True, method="BFGS", options={"gtol": 1e-9 * scale}).x
    return value(x, 0.0)[0]


@pytest.mark.parametrize("tolerance", [0.01, 0.001])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "d"), [(1, 4), (2, 3), (3, 5), (4, 5), (5, 5), (6, 6), (5, 12), (9, 11)])
def test_the_direction_is_steepest(n: int, d: int, kind: str, tolerance: float):
    W, G = problem(n, d, kind)
    X = solve(W, G, tolerance)
    assert (X @ W.mT + W @ X.mT).abs().max() < 1e-13
    assert torch.linalg.matrix_norm(X, 2) <= 1 + 1e-9
    # Weak duality: whatever the other solver found bounds every slope from above.
    upper, slope = least_nuclear_norm(W, G), -(G * X).sum().item()
    assert (1 - tolerance) * upper - 1e-9 * upper <= slope <= upper * (1 + 1e-9)


def test_a_smaller_tolerance_is_a_steeper_direction():
    W, G = problem(31, 32, "gauss")
    coarse, fine = (-(G * solve(W, G, tolerance)).sum().item() for tolerance in (1.0, 0.001))
    assert fine > 1.02 * coarse


@pytest.mark.parametrize("kind", KINDS)
def test_no_direction_at_random_is_steeper(kind: str):
    W, G = problem(6, 10, kind)
    slope = -(G * solve(W, G, 0.001)).sum()
    for seed in range(50):
        X = project_tangent(W, torch.randn(6, 10, generator=torch.Generator().manual_seed(seed)).double() * G.sign())
        assert (G * X).sum().abs() / torch.linalg.matrix_norm(X, 2) < slope


def test_of_a_square_weight_it_is_the_polar_factor_of_the_skew_part():
    W, G = problem(6, 6, "gauss")
    C = G @ W.mT
    torch.testing.assert_close(solve(W, G, 0.01), -project(C - C.mT) @ W, rtol=0, atol=1e-9)


def test_of_one_row_it_is_the_gradient_without_that_row():
    W, G = problem(1, 5, "gauss")
    N = G - (G @ W.mT) * W
    torch.testing.assert_close(solve(W, G, 0.01), -N / N.norm(), rtol=0, atol=1e-12)


def test_slopes_along_the_direction():
    W, G = problem(4, 9, "gauss")
    X = solve(W, G, 0.001)
    assert check_tangent(W, X).ok
    for retract in RETRACTIONS.values():
        assert check_retraction(retract, W, X).ok
        # The function falls as fast as the dual says.
        f = (G * retract(W, 1e-5 * X)).sum() - (G * W).sum()
        assert -f.item() / 1e-5 == pytest.approx(least_nuclear_norm(W, G), rel=2e-3)
    assert check_metric(lambda V: (G * V).sum() + (V**3).sum(), W, X).ok


@pytest.mark.parametrize("retraction", RETRACTIONS)
@pytest.mark.parametrize("case", SHAPES)
def test_every_shape_takes_the_step_of_its_groups(case: str, retraction: str):
    shape, group_size = SHAPES[case]
    W = on_manifold(shape, group_size)
    W.grad = noise(shape, 0)
    expected = [
        RETRACTIONS[retraction](V, solve(V, G, 0.01), 0.1)
        for V, G in zip(blocks_of(W, group_size), blocks_of(W.grad, group_size), strict=True)
    ]
    StiefelMuon([W], 0.1, momentum=0.0, retraction=retraction, group_size=group_size).step()  # type: ignore[arg-type]
    for V, target in zip(blocks_of(W, group_size), expected, strict=True):
        torch.testing.assert_close(V, target, rtol=0, atol=1e-12)
    assert off_manifold(W, group_size) < 1e-13


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_is_the_recursion_of_the_docstring(nesterov: bool):
    W = on_manifold((3, 7))
    optimizer = StiefelMuon([W], 0.1, momentum=0.9, nesterov=nesterov)
    V, b = W.detach().clone(), torch.zeros(3, 7, dtype=W.dtype)
    for step in range(4):
        W.grad = G = noise((3, 7), step)
        b = 0.9 * project_tangent(V, b) + project_tangent(V, G)
        D = project_tangent(V, G) + 0.9 * b if nesterov else b
        V = RETRACTIONS["qr"](V, solve(V, D, 0.01), 0.1)
        optimizer.step()
        torch.testing.assert_close(W.detach(), V, rtol=0, atol=1e-11)
        torch.testing.assert_close(optimizer.state[W]["momentum_buffer"], b, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("dtype", "size"),
    [(torch.float32, 1e-35), (torch.float32, 1e36), (torch.float64, 1e-170), (torch.float64, 1e170)],
)
def test_the_size_of_a_gradient_does_not_matter(dtype: torch.dtype, size: float):
    ends = []
    for factor in (1.0, size):
        W = on_manifold((4, 9), dtype=dtype)
        W.grad = factor * noise((4, 9), 0, dtype)
        StiefelMuon([W], 0.1).step()
        ends.append(W.detach())
    torch.testing.assert_close(*ends, rtol=0, atol=100 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("shape", [(20, 40), (40, 20), (30, 30)])
def test_singular_values_of_a_step_are_at_most_the_learning_rate_in_float32(shape: tuple[int, int]):
    W = on_manifold(shape, dtype=torch.float32)
    optimizer, norms = StiefelMuon([W], 0.1, retraction="polar"), []
    for step in range(5):
        before = W.detach().clone()
        W.grad = noise(shape, step, torch.float32)
        optimizer.step()
        norms.append(torch.linalg.matrix_norm(W.detach() - before, 2).item())
    # The polar factor of W + 0.1 X is nearer to W than 0.1 |X|_2.
    assert max(norms) <= 0.1 * (1 + 1e-3)
    assert min(norms) > 0.09


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gradient_without_a_tangent_part_moves_nothing(dtype: torch.dtype):
    W = on_manifold((6, 20), dtype=dtype)
    optimizer = StiefelMuon([W], 0.1)
    for step in range(3):
        before = W.detach().clone()
        S = noise((6, 6), step, dtype)
        W.grad = (S + S.mT) @ before
        optimizer.step()
        torch.testing.assert_close(W.detach(), before, rtol=0, atol=10 * torch.finfo(dtype).eps)


def test_it_trains_beside_torchs_muon():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3))
    nn.init.orthogonal_(net[0].weight)  # type: ignore[arg-type]
    ours = StiefelMuon([{"params": [net[0].weight]}, {"params": [net[0].bias, net[2].bias], "manifold": False}], 0.02)
    theirs = torch.optim.Muon([net[2].weight], 0.02)  # type: ignore[list-item]
    x = torch.randn(64, 8)
    y, losses = x[:, :3].argmax(1), []
    for _ in range(60):
        loss = nn.functional.cross_entropy(net(x), y)
        ours.zero_grad()
        theirs.zero_grad()
        loss.backward()
        ours.step()
        theirs.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
