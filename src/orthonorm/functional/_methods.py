"""The table of methods: each gives Sigma^{-1/2}, the Lyapunov equation of its derivatives, and the usual adjoint.

A method is one entry of `METHODS`: three functions on tensors that look at no value, so that they run under `vmap`,
`torch.compile` and CUDA graphs without a synchronisation. Derivatives are built on top of them, once for all methods
(`_inverse_sqrt.py`), so an entry needs no derivative of its own.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import is_functorch_wrapped_tensor as is_wrapped
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

__all__ = [
    "METHODS",
    "ONE_PASS",
    "Method",
    "choose_method",
    "condition_number",
    "coupled_newton",
    "is_traced",
    "newton_scales",
    "outermost",
    "relative_floor",
    "values_may_be_read",
]

ONE_PASS = 4.0  # up to this condition number one pass in float32 is exact enough: Note [passes in float32]

# Note [the relative floor]
# The Gram matrix of V has an error of a few units of round-off of its *largest* eigenvalue. Eigenvalues below
# 1024 eps times the largest one are lost in it. Both methods stop there: their P grows no further than
# (1024 eps s_max)^{-1/2} (Newton's than 7 times that), which keeps W = P V_C finite and its singular values near or
# below 1 where V has lost rank, and leaves every spectrum above it exactly as it is. The floor is relative, so V,
# 1e-6 V and 1e6 V give one W. Where directions are lost, Newton's iteration resolves the others to about 1e-3 only.
#
# The numbers of this file stand in its functions: with `dynamic=True` torch.compile takes a number of the module for a
# symbol, stops at it inside the node, and would expand sixty steps of the scales below as formulas.


class Method(NamedTuple):
    """One way to compute Sigma^{-1/2}: the root, and the two solvers that its derivatives need."""

    root: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]
    """Sigma (..., n, n) -> P = Sigma^{-1/2}, a basis, and (..., m) numbers that scale with P."""
    lyapunov: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    """(P, Q, the basis, the numbers) -> Y with P Y + Y P = Q."""
    adjoint: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    """(P, A, the basis, the numbers) -> P Y with P Y + Y P = P A + A^T P, where nothing is differentiated further."""


def relative_floor(dtype: torch.dtype) -> float:
    """Return the ratio of eigenvalues below which a Gram matrix of this type holds no information."""
    return 1024.0 * torch.finfo(dtype).eps


def _eigh_root(Sigma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    s, D = torch.linalg.eigh(Sigma)
    p = torch.maximum(s, relative_floor(s.dtype) * s[..., -1:]).rsqrt()
    return (D * p.unsqueeze(-2)) @ D.mT, D, p


def _eigh_lyapunov(P: Tensor, Q: Tensor, D: Tensor, p: Tensor) -> Tensor:
    # In the eigenbasis of P the equation is diagonal: this is the divided difference of errata 1, without a pole.
    def solve(Q: Tensor) -> Tensor:
        return D @ ((D.mT @ Q @ D) / (p.unsqueeze(-1) + p.unsqueeze(-2))) @ D.mT

    Y = solve(Q)
    return Y if _is_factorized(P, p) else Y + solve(Q - P @ Y - Y @ P)


# Note [the adjoint of eigh]
# With H = P^{-1} and U = P A - P Y, the equation P Y + Y P = P A + A^T P becomes H U + U H = A - A^T: no P multiplies a
# rounding error. In the eigenbasis, N = D^T (A - A^T) D and h = 1/p: U_ij = N_ij / (h_i + h_j).
# After a cubic step D and p are those of P before it, and D^T P D = diag(p) + E. To first order in E
# D^T H D = 2 diag(h) - B with B = diag(h) D^T P D diag(h), and one step of refinement of U_0 = N / (h_i + h_j) leaves
#     U = (B U_0 + U_0 B) / (h_i + h_j) = (B U_0 - (B U_0)^T) / (h_i + h_j),
# where U_0 is antisymmetric. |E| is 1e-4 of P at a condition number of 25, so what is left is 1e-8.


def _eigh_adjoint(P: Tensor, A: Tensor, D: Tensor, p: Tensor) -> Tensor:
    Dt, h = D.mT, p.reciprocal()
    row = h.unsqueeze(-2)
    sums = h.unsqueeze(-1) + row
    M = torch.bmm(torch.bmm(Dt, A), D)
    U = (M - M.mT).div_(sums)
    if not _is_factorized(P, p):
        Dh = D * row
        K = torch.bmm(torch.bmm(Dh.mT, torch.bmm(P, Dh)), U)
        U = (K - K.mT).div_(sums)
    return torch.baddbmm(torch.bmm(torch.bmm(D, U), Dt), P, A, beta=-1)


def _is_factorized(P: Tensor, p: Tensor) -> bool:
    """Return whether P = D diag(p) D^T to rounding: not after a cubic step (`forward/_float32.py`)."""
    if P.dtype == torch.float64:
        return True
    # A stack of batches comes from `inverse_sqrt` alone, and a spare refinement harms nothing.
    return values_may_be_read(p) and p.ndim == 2 and condition_number(outermost(p)) <= ONE_PASS


def newton_scales(lower: float, end: float = 1 - 1e-15) -> list[float]:
    """Return the scales of the iteration x <- mu x (3 - mu^2 x^2) / 2 that takes [lower, 1] to [end, 1].

    The mu that makes both ends of [l, 1] meet, mu^2 = 3 / (1 + l + l^2), is the fastest cubic for that interval. The
    lower end grows by 3^{3/2}/2 = 2.6 a step instead of 1.5. It also takes an x near 1 down to the lower end, a
    difference of near equals: for l = 1e-7 that costs seven digits. So l counts as no less than 0.1 there, which costs
    one more step and one digit. The scales depend on the interval only, never on the matrix.
    """
    scales = []
    # Half a unit of round-off below 1 the lower end may come to rest without reaching it.
    while lower < end and len(scales) < 60:
        reach = max(lower, 0.1)
        mu = (3 / (1 + reach + reach * reach)) ** 0.5
        scales.append(mu)
        lower = min(1.0, mu * lower * (3 - mu * mu * lower * lower) / 2)
    return scales


def _newton_root(Sigma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    eye = torch.eye(Sigma.shape[-1], dtype=Sigma.dtype, device=Sigma.device)
    size = torch.linalg.matrix_norm(Sigma, keepdim=True)  # at least the largest eigenvalue
    P = coupled_newton(Sigma / size, newton_scales(relative_floor(Sigma.dtype) ** 0.5)) / size.sqrt()
    return P, eye.expand_as(P), torch.linalg.matrix_norm(P).unsqueeze(-1)


def coupled_newton(Y: Tensor, scales: list[float]) -> Tensor:
    """Return Y^{-1/2}, of eigenvalues between the square of the lower end of the scales and 1."""
    eye = torch.eye(Y.shape[-1], dtype=Y.dtype, device=Y.device)
    Z = eye.expand_as(Y)
    for k, mu in enumerate(scales):
        T = torch.add(1.5 * mu * eye, Z @ Y if k else Y, alpha=-0.5 * mu**3)
        Z = T @ Z if k else T
        if k + 1 < len(scales):
            Y = Y @ T
    return torch.lerp(Z, Z.mT, 0.5)


def _lyapunov_floor(P: Tensor) -> float:
    """Return the square of the least number that an eigenvalue of P over its norm, at most sqrt(n), may be.

    For n the next power of two: torch.compile asks on which side of it a symbol is, and goes on with a plain number.
    """
    rows = 1
    while rows < P.shape[-1]:
        rows *= 2
    return (relative_floor(P.dtype) if P.dtype == torch.float64 else 2.5e-7) / rows


def _newton_lyapunov(P: Tensor, Q: Tensor, _: Tensor, bound: Tensor) -> Tensor:
    # Note [Lyapunov by the sign function]
    # The matrix M = [[P, Q], [0, -P]] has sign(M) = [[I, 2 Y], [0, -I]] with P Y + Y P = Q. An odd polynomial of M
    # keeps that shape, so the scaled iteration of the root, applied to M, needs only its two upper blocks A and B:
    # M^2 = [[A^2, A B - B A], [0, A^2]].
    A, B = P / bound.unsqueeze(-1), Q / bound.unsqueeze(-1)
    for mu in newton_scales(_lyapunov_floor(P) ** 0.5, 1 - 4 * torch.finfo(P.dtype).eps):
        a, b = 1.5 * mu, 0.5 * mu**3
        A2, AB = A @ A, A @ B
        B = a * B - b * (A @ AB - AB @ A + B @ A2)
        A = a * A - b * (A2 @ A)
    return B / 2


def _newton_adjoint(P: Tensor, A: Tensor, basis: Tensor, bound: Tensor) -> Tensor:
    PA = P @ A
    return P @ _newton_lyapunov(P, PA + PA.mT, basis, bound)


def values_may_be_read(X: Tensor) -> bool:
    """Return whether reading a value stops nothing: on a CPU, in eager mode, of a tensor that is no stand-in."""
    return X.device.type == "cpu" and not is_traced() and not (isinstance(X, FakeTensor) or is_wrapped(X))


def is_traced() -> bool:
    """Return whether operators are recorded, so that a value read now would be baked in."""
    return torch.compiler.is_compiling() or torch._C._is_tracing() or get_proxy_mode() is not None


def outermost(values: Tensor) -> list[list[float]]:
    """Return the first and the last of the sorted values (b, n) of each matrix."""
    return values[:, :: max(values.shape[-1] - 1, 1)].tolist()


def condition_number(ends: list[list[float]]) -> float:
    """Return the largest ratio of two outermost values; infinite if one is not positive."""
    return max(max(e[0] / e[-1], e[-1] / e[0]) if min(e) > 0 else math.inf for e in ends)


METHODS: dict[str, Method] = {
    "eigh": Method(_eigh_root, _eigh_lyapunov, _eigh_adjoint),
    "newton": Method(_newton_root, _newton_lyapunov, _newton_adjoint),
}


def choose_method(method: str, device: torch.device) -> str:
    """Return the table's key for `method`, resolving "auto".

    "auto" is "eigh" on the CPU and "newton" on an accelerator, where a batched eigendecomposition serialises while
    matrix products do not. For float32 in traced code `choose_path` takes "newton" on the CPU too.

    Raises:
        ValueError: if `method` is neither "auto" nor a key of the table.
    """
    if method == "auto":
        return "eigh" if device.type in ("cpu", "meta") else "newton"
    if method not in METHODS:
        known = ", ".join(repr(name) for name in ("auto", *METHODS))
        raise ValueError(f"method must be one of {known}; got {method!r}.")
    return method
