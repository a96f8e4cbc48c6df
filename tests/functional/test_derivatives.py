"""First and second derivatives, reverse and forward, against finite differences at every spectrum."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import oracle
from orthonorm.functional import inverse_sqrt, orthonormalize
from orthonorm.functional._transformation import _OrthonormalizeForward
from spectra import SPECTRA, matrix, orthonormal_rows, starting_points

# Torch compiles its own forward-mode rules with it on first use.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

POINTS = starting_points(3, 8)
AT_EVERY_POINT = pytest.mark.parametrize(
    ("V", "fast"), [(V, name != "pairs") for name, V in POINTS.items()], ids=POINTS
)
"""`fast` compares in one random direction instead of every entry, which the point "pairs" does."""


@AT_EVERY_POINT
def test_gradcheck(V: Tensor, fast: bool, center: bool, method: str):
    assert V.norm() > 0
    function = partial(orthonormalize, center=center, method=method)
    options = {"check_forward_ad": True, "check_batched_grad": True, "fast_mode": fast}
    assert gradcheck(function, V.clone().requires_grad_(), **options)


@AT_EVERY_POINT
def test_gradgradcheck(V: Tensor, fast: bool, center: bool, method: str):
    function = partial(orthonormalize, center=center, method=method)
    assert gradgradcheck(function, V.clone().requires_grad_(), check_fwd_over_rev=True, fast_mode=fast)


@pytest.mark.slow
def test_gradgradcheck_in_groups(center: bool, method: str):
    V = torch.randn(2, 3, 3, dtype=torch.float64, requires_grad=True)
    function = partial(orthonormalize, group_size=2, center=center, method=method)
    assert gradcheck(function, V, check_forward_ad=True)
    assert gradgradcheck(function, V, check_fwd_over_rev=True, check_rev_over_rev=True, fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("condition", "off"), [(1e3, 1e-6), (1e6, 1e-3)])
@pytest.mark.parametrize("name", SPECTRA)
def test_the_gradient_is_exact_up_to_a_condition_of_1e6(
    name: str, condition: float, off: float, dtype: torch.dtype, center: bool, method: str
):
    # Against the one from singular vectors, in units of |Sigma^{-1/2}| |G|: beyond what finite differences resolve.
    V = matrix(SPECTRA[name](12, condition), 20, center=center).to(dtype)
    G = torch.randn(12, 20, generator=torch.Generator().manual_seed(0), dtype=dtype)
    expected = oracle.gradient_of_polar(V.double(), G.double(), center=center)
    smallest = torch.linalg.svdvals(V.double() - V.double().mean(1, keepdim=True) if center else V.double())[-1]
    V.requires_grad_()
    W = orthonormalize(V, center=center, method=method, precision="float64")
    (gradient,) = torch.autograd.grad(W, V, G)
    assert expected.norm() > 0.1 * G.norm()
    assert (gradient - expected).norm() * smallest <= off * G.norm()


def penalty(V: Tensor, center: bool, method: str) -> Tensor:
    """The squared norm of the gradient of a loss that is not linear in W."""
    weights = torch.linspace(-1, 1, V.numel(), dtype=V.dtype).reshape(V.shape)
    loss = (weights * orthonormalize(V, center=center, method=method).sin()).sum()
    return torch.autograd.grad(loss, V, create_graph=True)[0].square().sum()


@AT_EVERY_POINT
def test_gradient_penalty(V: Tensor, fast: bool, center: bool, method: str):
    # The backward of the transformation uses P as well as W: a P held constant would be wrong here, and only here.
    assert gradcheck(partial(penalty, center=center, method=method), V.clone().requires_grad_(), fast_mode=fast)


@pytest.mark.parametrize("name", ["normal", "orthogonal", "pairs"])
def test_the_gradient_of_a_gradient_penalty(name: str, center: bool, method: str):
    V = POINTS[name].clone().requires_grad_()
    function = partial(penalty, center=center, method=method)
    assert gradgradcheck(function, V, atol=1e-4, rtol=1e-3, fast_mode=True)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "fast"), [("normal", True), ("orthogonal", True), ("pairs", False)])
def test_both_outputs_of_the_node(name: str, fast: bool, center: bool, method: str):
    # W and P together, so that the loss has a gradient with respect to each.
    def both(V: Tensor) -> tuple[Tensor, Tensor]:
        P, _, _, W = _OrthonormalizeForward.apply(center, f"float64 by {method}", V[None])
        return W, P

    V = POINTS[name].clone().requires_grad_()
    assert gradcheck(both, V, check_forward_ad=True, fast_mode=fast)
    assert gradgradcheck(both, V, check_fwd_over_rev=True, fast_mode=True)


def given_spectrum(name: str) -> Tensor:
    U = orthonormal_rows(4, 4, torch.Generator().manual_seed(2))
    return U.T * SPECTRA[name](4, 10.0) @ U


SIGMAS = {
    "identity": torch.eye(4, dtype=torch.float64),
    "diagonal pairs": torch.diag(torch.tensor([1.0, 1.0, 4.0, 4.0], dtype=torch.float64)),
    "batch": torch.stack([given_spectrum("log-spaced"), 3 * torch.eye(4, dtype=torch.float64)]),
} | {name: given_spectrum(name) for name in SPECTRA}


@pytest.mark.parametrize(("Sigma", "fast"), [(S, name != "diagonal pairs") for name, S in SIGMAS.items()], ids=SIGMAS)
def test_inverse_sqrt(Sigma: Tensor, fast: bool, method: str):
    function = partial(inverse_sqrt, method=method)
    Sigma = Sigma.clone().requires_grad_()
    assert gradcheck(function, Sigma, check_forward_ad=True, check_batched_grad=True, fast_mode=fast)
    assert gradgradcheck(function, Sigma, check_fwd_over_rev=True, atol=1e-4, rtol=1e-4, fast_mode=fast)


@pytest.mark.parametrize("name", ["log-spaced", "equal"])
def test_third_derivative_of_inverse_sqrt(name: str, method: str):
    weights = torch.linspace(-1, 1, 9, dtype=torch.float64).reshape(3, 3)

    def second(Sigma: Tensor) -> Tensor:
        loss = (weights * inverse_sqrt(Sigma, method=method).sin()).sum()
        (first,) = torch.autograd.grad(loss, Sigma, create_graph=True)
        return torch.autograd.grad((weights.T * first.sin()).sum(), Sigma, create_graph=True)[0]

    U = orthonormal_rows(3, 3, torch.Generator().manual_seed(2))
    Sigma = (U.T * SPECTRA[name](3, 3.0) @ U).requires_grad_()
    assert gradcheck(second, Sigma)


def test_the_derivative_of_inverse_sqrt_is_the_divided_difference(method: str):
    # Errata 1: in the eigenbasis dP_ij = -dSigma_ij / (sqrt(s_i) sqrt(s_j) (sqrt(s_i) + sqrt(s_j))).
    s = torch.tensor([1.0, 4.0, 4.0, 25.0], dtype=torch.float64)
    r = s.sqrt()
    E = torch.randn(4, 4, dtype=torch.float64)
    E = E + E.T
    dP = torch.func.jvp(partial(inverse_sqrt, method=method), (torch.diag(s),), (E,))[1]
    expected = -E / (r[:, None] * r * (r[:, None] + r))
    torch.testing.assert_close(dP, expected, rtol=0, atol=1e-12)


def test_gradients_of_half_types_are_finite_and_of_their_type(method: str):
    for dtype in (torch.float16, torch.bfloat16):
        V = torch.randn(8, 16).to(dtype).requires_grad_()
        G = torch.randn(8, 16).to(dtype)
        (gradient,) = torch.autograd.grad(orthonormalize(V, method=method), V, G)
        wide = V.detach().double().requires_grad_()
        (expected,) = torch.autograd.grad(orthonormalize(wide, method=method), wide, G.double())
        assert gradient.dtype == dtype
        assert (gradient.double() - expected).norm() <= 8 * torch.finfo(dtype).eps * expected.norm()
