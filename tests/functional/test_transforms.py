"""torch.func, autocast and torch.compile give what the plain call gives."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from orthonorm.functional import inverse_sqrt, orthonormalize
from orthonorm.functional._methods import _lyapunov_floor, newton_scales, relative_floor

# Torch compiles its own forward-mode rules with it on first use.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

CLOSE = {"rtol": 0, "atol": 1e-12}


def batch(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def loss(V: Tensor, center: bool, method: str) -> Tensor:
    W = orthonormalize(V, group_size=2, center=center, method=method)
    return (torch.linspace(-1, 1, V.numel(), dtype=V.dtype).reshape(V.shape) * W.sin()).sum()


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_vmap_is_a_loop(dim: int, center: bool, method: str):
    V = batch(5, 4, 7)
    phi = partial(orthonormalize, group_size=3, center=center, method=method)
    W = torch.vmap(phi, in_dims=dim, out_dims=dim)(V.movedim(0, dim)).movedim(dim, 0)
    torch.testing.assert_close(W, torch.stack([phi(v) for v in V]), **CLOSE)


def test_vmap_over_more_than_a_block(method: str):
    V = torch.randn(3, 40, 30_000)  # 9 MiB in float64
    phi = partial(orthonormalize, group_size=20, method=method)
    torch.testing.assert_close(torch.vmap(phi)(V), torch.stack([phi(v) for v in V]), rtol=0, atol=1e-5)


def test_a_batch_of_gradients_is_a_loop(center: bool, method: str):
    V, G = batch(6, 9).requires_grad_(), batch(3, 6, 9)
    W = orthonormalize(V, group_size=3, center=center, method=method)
    expected = torch.stack([torch.autograd.grad(W, V, g, retain_graph=True)[0] for g in G])
    (together,) = torch.autograd.grad(W, V, G, is_grads_batched=True, retain_graph=True)
    torch.testing.assert_close(together, expected, **CLOSE)
    mapped = torch.vmap(lambda g: torch.autograd.grad(W, V, g, retain_graph=True)[0])(G)
    torch.testing.assert_close(mapped, expected, **CLOSE)


def test_nested_vmap_is_two_loops(center: bool, method: str):
    V = batch(2, 3, 4, 7)
    phi = partial(orthonormalize, center=center, method=method)
    expected = torch.stack([torch.stack([phi(v) for v in row]) for row in V])
    torch.testing.assert_close(torch.vmap(torch.vmap(phi))(V), expected, **CLOSE)


def test_vmap_of_inverse_sqrt_is_a_loop(method: str):
    A = batch(5, 4, 6)
    Sigma = A @ A.mT
    phi = partial(inverse_sqrt, method=method)
    torch.testing.assert_close(torch.vmap(phi)(Sigma), torch.stack([phi(s) for s in Sigma]), rtol=1e-11, atol=1e-12)


def test_func_grad_is_autograd(center: bool, method: str):
    V = batch(4, 6)
    f = partial(loss, center=center, method=method)
    W = V.clone().requires_grad_()
    (expected,) = torch.autograd.grad(f(W), W)
    torch.testing.assert_close(torch.func.grad(f)(V), expected, **CLOSE)


def test_gradients_of_each_sample(center: bool, method: str):
    V = batch(5, 4, 6)
    grad = torch.func.grad(partial(loss, center=center, method=method))
    torch.testing.assert_close(torch.vmap(grad)(V), torch.stack([grad(v) for v in V]), **CLOSE)


def test_jacobians_agree(center: bool, method: str):
    V = batch(3, 5)
    phi = partial(orthonormalize, center=center, method=method)
    expected = torch.autograd.functional.jacobian(phi, V)
    torch.testing.assert_close(torch.func.jacrev(phi)(V), expected, **CLOSE)
    torch.testing.assert_close(torch.func.jacfwd(phi)(V), expected, **CLOSE)


def test_hessians_agree(center: bool, method: str):
    V = batch(3, 4)
    f = partial(loss, center=center, method=method)
    expected = torch.autograd.functional.hessian(f, V)
    assert isinstance(expected, Tensor)
    assert expected.abs().max() > 0.1
    tolerance = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(torch.func.hessian(f)(V), expected, **tolerance)
    torch.testing.assert_close(torch.func.jacrev(torch.func.jacrev(f))(V), expected, **tolerance)


def test_directional_derivative_is_a_product_with_the_jacobian(center: bool, method: str):
    V, dV = batch(2, 4, 6)
    phi = partial(orthonormalize, center=center, method=method)
    dW = torch.func.jvp(phi, (V,), (dV,))[1]
    expected = torch.einsum("abij,ij->ab", torch.func.jacrev(phi)(V), dV)
    torch.testing.assert_close(dW, expected, **CLOSE)


def test_forward_mode_over_forward_mode_is_refused(method: str):
    V, D = batch(2, 4, 7)

    def along(function: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        return lambda v: torch.func.jvp(function, (v,), (D,))[1]

    Sigma = V @ V.T + torch.eye(4)
    for function, x in ((partial(orthonormalize, method=method), V), (partial(inverse_sqrt, method=method), Sigma)):
        with pytest.raises(RuntimeError, match=r"forward over reverse"):
            torch.func.jacfwd(torch.func.jacfwd(function))(x)
    with pytest.raises(RuntimeError, match="forward mode over forward mode"):
        along(along(partial(orthonormalize, method=method)))(V)
    # What the message advises is right.
    gradient = torch.func.grad(partial(loss, center=True, method=method))
    small = 1e-6 * D
    expected = (gradient(V + small) - gradient(V - small)) / 2e-6
    torch.testing.assert_close(along(gradient)(V), expected, rtol=1e-6, atol=1e-6)


def test_an_autocast_region_changes_nothing(center: bool, method: str):
    V, G = torch.randn(2, 8, 20)

    def run(V: Tensor, G: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        V = V.clone().requires_grad_()
        W = orthonormalize(V, group_size=4, center=center, method=method)
        differentiable = torch.autograd.grad(W, V, G, create_graph=True)[0]
        return W, differentiable, torch.autograd.grad(W, V, G)[0]

    plain = run(V, G)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (V @ G.T).dtype == torch.bfloat16
        inside = run(V, G)
    assert all(torch.equal(a, b) for a, b in zip(plain, inside, strict=True))


def test_reduced_precision_of_float32_products_changes_nothing(center: bool, method: str):
    V = torch.randn(64, 200)
    W = orthonormalize(V, center=center, method=method)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        assert torch.equal(orthonormalize(V, center=center, method=method), W)
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.nightly
@pytest.mark.compiled
@pytest.mark.parametrize(("dtype", "center"), [(torch.float32, True), (torch.float64, False)], ids=str)
def test_compiled_is_eager(dtype: torch.dtype, center: bool, method: str):
    torch.compiler.reset()
    V, G = torch.randn(2, 7, 9, dtype=dtype)
    phi = partial(orthonormalize, group_size=3, center=center, method=method)

    def run(function) -> tuple[Tensor, Tensor]:
        W = V.clone().requires_grad_()
        out = function(W)
        return out, torch.autograd.grad(out, W, G)[0]

    compiled = torch.compile(phi, fullgraph=True, backend="aot_eager")
    eps = torch.finfo(dtype).eps
    for actual, expected in zip(run(compiled), run(phi), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=32 * eps)


@pytest.mark.nightly
@pytest.mark.compiled
def test_compiled_inverse_sqrt_is_eager(method: str):
    torch.compiler.reset()
    A, G = batch(2, 4, 6)
    Sigma = A @ A.T

    def phi(S: Tensor) -> Tensor:
        return inverse_sqrt(S, method=method)

    def run(function) -> tuple[Tensor, Tensor]:
        S = Sigma.clone().requires_grad_()
        P = function(S)
        return P, torch.autograd.grad(P, S, G[:, :4])[0]

    compiled = torch.compile(phi, fullgraph=True, backend="aot_eager")
    for actual, expected in zip(run(compiled), run(phi), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.nightly
@pytest.mark.compiled
def test_compiled_for_shapes_that_vary(method: str):
    torch.compiler.reset()

    def phi(V: Tensor) -> Tensor:
        return orthonormalize(V, method=method)

    compiled = torch.compile(phi, fullgraph=True, backend="aot_eager")
    for n, d in [(4, 12), (4, 15), (5, 18)]:
        V, G = batch(2, n, d)
        V.requires_grad_()
        W, expected = compiled(V), phi(V)
        torch.testing.assert_close(W, expected, **CLOSE)
        gradients = [torch.autograd.grad(out, V, G)[0] for out in (W, expected)]
        torch.testing.assert_close(*gradients, **CLOSE)


@pytest.mark.nightly
@pytest.mark.compiled
@pytest.mark.parametrize(
    "number", [lambda x: relative_floor(x.dtype), lambda _: newton_scales(0.9999)[0]], ids=["floor", "scales"]
)
def test_a_methods_numbers_are_no_symbols_where_sizes_are(number: Callable[[Tensor], float]):
    torch.compiler.reset()
    seen: list[Tensor] = []

    def record(graph: torch.fx.GraphModule, inputs: list[Tensor | int]) -> Callable:
        seen.extend(x for x in inputs if isinstance(x, Tensor))
        return graph.forward

    x = torch.ones(3)
    compiled = torch.compile(lambda x: x * number(x), backend=record, dynamic=True)
    torch.testing.assert_close(compiled(x), x * number(x))
    assert len(seen) == 1  # x alone


@pytest.mark.nightly
@pytest.mark.compiled
def test_steps_are_no_formulas_of_a_size_that_is_a_symbol():
    torch.compiler.reset()
    graphs = 0

    def count(graph: torch.fx.GraphModule, _: list[Tensor | int]) -> Callable:
        nonlocal graphs
        graphs += 1
        return graph.forward

    def steps(P: Tensor) -> Tensor:
        return P * len(newton_scales(_lyapunov_floor(P) ** 0.5))

    compiled = torch.compile(steps, backend=count, dynamic=True, fullgraph=True)
    for n in (5, 6, 7, 8):
        P = torch.eye(n, dtype=torch.float64)
        torch.testing.assert_close(compiled(P), steps(P))
    assert graphs == 1
