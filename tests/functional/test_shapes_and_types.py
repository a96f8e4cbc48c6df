"""Any shape, layout and floating type; nothing of the caller's is touched."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orthonorm.functional import inverse_sqrt, orthonormalize
from orthonorm.functional._groups import GROUPINGS, group_sizes
from orthonorm.functional._methods import METHODS
from orthonorm.functional._orthogonality import orthogonality_errors

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
EACH_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=str)


@given(
    batch=st.lists(st.integers(1, 3), max_size=2),
    n=st.integers(1, 24),
    d=st.integers(2, 24),
    share=st.floats(0.01, 1),
    center=st.booleans(),
    grouping=st.sampled_from(GROUPINGS),
    method=st.sampled_from(list(METHODS)),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_error_is_at_the_precision_of_the_type(batch, n, d, share, center, grouping, method, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    V = torch.randn(*batch, n, d, generator=generator, dtype=torch.float64)
    # Rows near to dependent would say what rounding V to `dtype` does; the square uncentred group is the worst left.
    options = {"group_size": max(1, int(share * (d - center))), "center": center, "grouping": grouping}
    V = V.to(dtype)
    W = orthonormalize(V, method=method, **options)
    assert W.shape == V.shape
    assert W.dtype == dtype
    largest = max(group_sizes(n, d, **options))
    # Each entry of W is rounded once: an inner product of two unit rows moves by at most about 2 eps.
    assert orthogonality_errors(W, group_sizes(n, d, **options)).max() <= 2 * torch.finfo(dtype).eps * max(
        1, largest**0.5
    )


@EACH_DTYPE
def test_inverse_sqrt_in_each_type(dtype: torch.dtype, method: str):
    A = torch.randn(3, 5, 9)
    Sigma = (A @ A.mT).to(dtype)
    P = inverse_sqrt(Sigma, method=method)
    assert P.dtype == dtype
    wide = P.double()
    error = (wide @ Sigma.double() @ wide - torch.eye(5, dtype=torch.float64)).abs().max()
    assert error <= 64 * torch.finfo(dtype).eps


def test_a_batch_is_a_loop(center: bool, method: str):
    V = torch.randn(2, 3, 5, 7, dtype=torch.float64)
    W = orthonormalize(V, group_size=3, center=center, method=method)
    for i in range(2):
        for j in range(3):
            alone = orthonormalize(V[i, j], group_size=3, center=center, method=method)
            torch.testing.assert_close(W[i, j], alone, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_many_matrices_are_a_loop(dtype: torch.dtype, center: bool, method: str):
    # More than the CPU maps at once: blocks of a batch are put back where they belong.
    V = torch.randn(64, 8, 2048, dtype=dtype) + 3
    W = orthonormalize(V, center=center, method=method)
    alone = torch.stack([orthonormalize(v, center=center, method=method) for v in V])
    torch.testing.assert_close(W, alone, rtol=0, atol=8 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("shape", [(0, 5), (0, 0), (0, 3, 5), (2, 0, 5), (3, 0, 4, 5), (0, 1)], ids=str)
def test_empty_gives_empty(shape: tuple[int, ...], center: bool, method: str):
    V = torch.randn(shape, requires_grad=True)
    W = orthonormalize(V, center=center, method=method)
    assert W.shape == V.shape
    assert W.dtype == V.dtype
    (gradient,) = torch.autograd.grad(W.sum(), V)
    assert gradient.shape == V.shape


@pytest.mark.parametrize("shape", [(0, 0), (0, 4, 4), (3, 0, 0)], ids=str)
def test_empty_inverse_sqrt(shape: tuple[int, ...], method: str):
    P = inverse_sqrt(torch.randn(shape), method=method)
    assert P.shape == shape


LAYOUTS = {
    "transposed": lambda V: V.mT.contiguous().mT,
    "every other column": lambda V: torch.stack([V, -V], -1).flatten(-2)[..., ::2],
    "reversed storage": lambda V: V.flip(0).contiguous().flip(0),
    "channels first": lambda V: V.movedim(0, -1).contiguous().movedim(-1, 0),
    "with an offset": lambda V: torch.cat([V.new_ones(1, *V.shape[1:]), V])[1:],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_layout_in_memory_does_not_matter(name: str, center: bool, method: str):
    V = torch.randn(3, 4, 6, dtype=torch.float64)
    other = LAYOUTS[name](V)
    assert torch.equal(V, other)
    results = []
    for X in (V, other):
        X = X.detach().requires_grad_()
        W = orthonormalize(X, center=center, method=method)
        results.append((W, torch.autograd.grad(W.sin().sum(), X)[0]))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_an_expanded_batch(center: bool, method: str):
    V = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    W = orthonormalize(V.expand(3, 4, 6), center=center, method=method)
    alone = orthonormalize(V, center=center, method=method)
    torch.testing.assert_close(W, alone.expand(3, 4, 6), rtol=0, atol=1e-12)
    gradients = [torch.autograd.grad(out.sin().sum(), V, retain_graph=True)[0] for out in (W, alone)]
    torch.testing.assert_close(gradients[0], 3 * gradients[1], rtol=0, atol=1e-11)


@EACH_DTYPE
def test_inputs_are_left_as_they_are(dtype: torch.dtype, center: bool, method: str):
    V, G = (3 + torch.randn(2, 5, 8)).to(dtype).unbind()
    Sigma = (V.float() @ V.float().T).to(dtype)
    copies = [X.clone() for X in (V, G, Sigma)]
    orthonormalize(V, group_size=3, center=center, method=method)
    assert torch.equal(V, copies[0])
    V.requires_grad_()
    W = orthonormalize(V, group_size=3, center=center, method=method)
    weight = W.detach().clone()
    inverse_sqrt(Sigma, method=method)
    torch.autograd.grad(W, V, G, retain_graph=True)
    torch.autograd.grad(W, V, G)
    for X, copy in zip((V, G, Sigma, W), (*copies, weight), strict=True):
        assert torch.equal(X, copy)
        assert X._version == 0


@pytest.mark.parametrize("n", [1, 5])
def test_the_result_is_memory_of_its_own(n: int, center: bool, method: str):
    V = torch.randn(n, 8, dtype=torch.float64)
    W = orthonormalize(V, center=center, method=method)
    before = V.clone()
    W.zero_()
    assert torch.equal(V, before)


def test_no_random_number_is_drawn(center: bool, method: str):
    V = torch.randn(5, 8, requires_grad=True)
    before = torch.get_rng_state()
    orthonormalize(V, group_size=3, center=center, method=method).sum().backward()
    inverse_sqrt(V.detach() @ V.detach().T, method=method)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_same_call_gives_the_same_bits(center: bool, method: str):
    V = torch.randn(30, 20)
    first = orthonormalize(V, center=center, method=method)
    assert torch.equal(orthonormalize(V.clone(), center=center, method=method), first)


def test_auto_is_a_method_of_the_table():
    V = torch.randn(5, 8)
    assert any(torch.equal(orthonormalize(V), orthonormalize(V, method=method)) for method in METHODS)
