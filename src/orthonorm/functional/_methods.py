"""The table of methods: each gives Sigma^{-1/2}, the Lyapunov equation of its derivatives, and the usual adjoint.

A method is one entry of `METHODS`: three functions on tensors that look at no value, so that they run under `vmap`,
`torch.compile` and CUDA graphs without a synchronisation. Derivatives are built on top of them, once for all methods
(`inverse_sqrt.py`), so an entry needs no derivative of its own.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["METHODS", "Method", "choose_method", "relative_floor"]

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
    """One way to compute Sigma^{-1/2}: the root, and the solver that its derivatives need."""

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


def _eigh_lyapunov(_: Tensor, Q: Tensor, D: Tensor, p: Tensor) -> Tensor:
    # In the eigenbasis of P the equation is diagonal: this is the divided difference of errata 1, without a pole.
    Y = (D.mT @ Q @ D) / (p.unsqueeze(-1) + p.unsqueeze(-2))
    return D @ Y @ D.mT


def _eigh_adjoint(_: Tensor, A: Tensor, D: Tensor, p: Tensor) -> Tensor:
    # Y_ij = (p_i M_ij + p_j M_ji) / (p_i + p_j) with M = D^T A D.
    M = (D.mT @ A @ D) * (p.unsqueeze(-1) / (p.unsqueeze(-1) + p.unsqueeze(-2)))
    return (D * p.unsqueeze(-2)) @ (M + M.mT) @ D.mT


def _newton_scales(floor: float) -> list[float]:
    """Return the scales of the iteration x <- mu x (3 - mu^2 x^2) / 2 that takes [floor, 1] to 1.

    The mu that makes both ends of [l, 1] meet, mu^2 = 3 / (1 + l + l^2), is the fastest cubic for that interval: the
    lower end grows by 3^{3/2}/2 = 2.6 a step instead of 1.5. It also takes an x near 1 down to the lower end, a
    difference of near equals: for l = 1e-7 that costs seven digits. So l counts as no less than 0.1 there, which costs
    one more step and one digit. The scales depend on the interval only, never on the matrix.
    """
    scales, lower = [], floor
    # Half a unit of round-off below 1 the lower end may come to rest without reaching it.
    while 1 - lower > 1e-15 and len(scales) < 60:
        reach = max(lower, 0.1)
        mu = (3 / (1 + reach + reach * reach)) ** 0.5
        scales.append(mu)
        lower = min(1.0, mu * lower * (3 - mu * mu * lower * lower) / 2)
    return scales


def _newton_root(Sigma: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    eye = torch.eye(Sigma.shape[-1], dtype=Sigma.dtype, device=Sigma.device)
    size = torch.linalg.matrix_norm(Sigma, keepdim=True)  # at least the largest eigenvalue
    Y, Z = Sigma / size, eye.expand_as(Sigma)
    for mu in _newton_scales(relative_floor(Sigma.dtype) ** 0.5):
        T = 1.5 * mu * eye - (0.5 * mu**3) * (Z @ Y)
        Y, Z = Y @ T, T @ Z
    P = (Z + Z.mT) / (2 * size.sqrt())
    return P, eye.expand_as(P), torch.linalg.matrix_norm(P).unsqueeze(-1)


def _lyapunov_floor(P: Tensor) -> float:
    """Return the square of the least number that an eigenvalue of P over its norm, at most sqrt(n), may be.

    For n the next power of two: torch.compile asks on which side of it a symbol is, and goes on with a plain number.
    """
    rows = 1
    while rows < P.shape[-1]:
        rows *= 2
    return relative_floor(P.dtype) / rows


def _newton_lyapunov(P: Tensor, Q: Tensor, _: Tensor, bound: Tensor) -> Tensor:
    # Note [Lyapunov by the sign function]
    # The matrix M = [[P, Q], [0, -P]] has sign(M) = [[I, 2 Y], [0, -I]] with P Y + Y P = Q. An odd polynomial of M
    # keeps that shape, so the scaled iteration of the root, applied to M, needs only its two upper blocks A and B:
    # M^2 = [[A^2, A B - B A], [0, A^2]].
    A, B = P / bound.unsqueeze(-1), Q / bound.unsqueeze(-1)
    for mu in _newton_scales(_lyapunov_floor(P) ** 0.5):
        a, b = 1.5 * mu, 0.5 * mu**3
        A2, AB = A @ A, A @ B
        B = a * B - b * (A @ AB - AB @ A + B @ A2)
        A = a * A - b * (A2 @ A)
    return B / 2


def _newton_adjoint(P: Tensor, A: Tensor, basis: Tensor, bound: Tensor) -> Tensor:
    PA = P @ A
    return P @ _newton_lyapunov(P, PA + PA.mT, basis, bound)


METHODS: dict[str, Method] = {
    "eigh": Method(_eigh_root, _eigh_lyapunov, _eigh_adjoint),
    "newton": Method(_newton_root, _newton_lyapunov, _newton_adjoint),
}


def choose_method(method: str, device: torch.device) -> str:
    """Return the table's key for `method`, resolving "auto".

    "auto" is "eigh" on the CPU and "newton" on an accelerator, where a batched eigendecomposition serialises while
    matrix products do not.

    Raises:
        ValueError: if `method` is neither "auto" nor a key of the table.
    """
    if method == "auto":
        return "eigh" if device.type in ("cpu", "meta") else "newton"
    if method not in METHODS:
        known = ", ".join(repr(name) for name in ("auto", *METHODS))
        raise ValueError(f"method must be one of {known}; got {method!r}.")
    return method
