"""Sigma^{-1/2} of a batch of symmetric positive matrices, differentiable to every order."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ._function_transforms import refuse_nested_forward_mode
from ._methods import METHODS, choose_method
from ._precision import exact_products, working_dtype

__all__ = ["inverse_sqrt", "lyapunov", "root"]

# Note [two primitives closed under differentiation]
# P = Sigma^{-1/2} satisfies P Sigma P = I. Differentiating, with P Sigma = P^{-1},
#     P^{-1} dP + dP P^{-1} = -P dSigma P,   so   dP = -P L(P dSigma P) P,
# where L(Q) is the solution Y of the Lyapunov equation P Y + Y P = Q. L is its own adjoint, hence
#     dL/dSigma = -P L(P (dL/dP) P) P.
# Differentiating P Y + Y P = Q gives dY = L(dQ - dP Y - Y dP), that is, L once more. So every derivative of the inverse
# square root is made of P, products and L. In the eigenbasis L divides by p_i + p_j > 0: no pole at equal eigenvalues
# (errata 1), where the paper's K_ij = 1/(s_i - s_j) divides by zero.
#
# A method hands `lyapunov` two tensors of the forward pass (for `eigh`, the eigenvectors and p). They serve as a
# factorisation of P, never as a variable: all derivatives flow through P itself, which is why second derivatives stay
# right where quantities saved as constants would silently drop a term.
#
# Dynamo refuses an autograd node that has a forward-mode rule, so that rule sits in a subclass that eager mode uses.


def root(Sigma: Tensor, method: str) -> tuple[Tensor, Tensor, Tensor]:
    """Return P = Sigma^{-1/2} and the method's two tensors, for any scale of Sigma and any content.

    A matrix that is not finite gives a P of NaN and leaves the others of the batch right, since what LAPACK and
    cuSOLVER do with a NaN differs from case to case, up to an exception. A zero matrix gives the identity.
    """
    eye = torch.eye(Sigma.shape[-1], dtype=Sigma.dtype, device=Sigma.device)
    nothing = (Sigma * 0).sum((-2, -1), keepdim=True)  # 0, or NaN: of a NaN, and of infinity
    size = Sigma.diagonal(dim1=-2, dim2=-1).amax(-1, keepdim=True).unsqueeze(-1)
    usable = size + nothing > 0
    size = torch.where(usable, size, 1.0)
    P, basis, numbers = METHODS[method].root(torch.where(usable, Sigma / size, eye))
    scale = size.rsqrt() + nothing
    return P * scale, basis, numbers * scale.squeeze(-1)


class _InverseSqrt(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(Sigma: Tensor, method: str) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        return root(Sigma, method)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        P, basis, numbers = output
        ctx.mark_non_differentiable(basis, numbers)
        ctx.method = inputs[1]
        ctx.save_for_backward(P, basis, numbers)
        ctx.save_for_forward(P, basis, numbers)

    @staticmethod
    def backward(ctx: Any, grad_P: Tensor, *_: Any) -> tuple[Tensor, None]:  # type: ignore[override]
        P, basis, numbers = ctx.saved_tensors
        with exact_products(P.device, P.dtype):
            return -P @ lyapunov(P, P @ grad_P @ P, basis, numbers, ctx.method) @ P, None


class _InverseSqrtForward(_InverseSqrt):
    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> tuple[Tensor, None, None]:  # type: ignore[override]
        refuse_nested_forward_mode()
        P, basis, numbers = ctx.saved_tensors
        return -P @ lyapunov(P, P @ tangent @ P, basis, numbers, ctx.method) @ P, None, None


class _Lyapunov(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(P: Tensor, Q: Tensor, basis: Tensor, numbers: Tensor, method: str) -> Tensor:  # type: ignore[override]
        return METHODS[method].lyapunov(P, Q, basis, numbers)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        P, _, basis, numbers, ctx.method = inputs
        ctx.save_for_backward(P, output, basis, numbers)
        ctx.save_for_forward(P, output, basis, numbers)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:  # type: ignore[override]
        P, Y, basis, numbers = ctx.saved_tensors
        with exact_products(P.device, P.dtype):
            Z = lyapunov(P, grad, basis, numbers, ctx.method)
            return -(Z @ Y.mT + Y.mT @ Z), Z, None, None, None


class _LyapunovForward(_Lyapunov):
    @staticmethod
    def jvp(ctx: Any, dP: Tensor, dQ: Tensor, *_: Any) -> Tensor:  # type: ignore[override]
        refuse_nested_forward_mode()
        P, Y, basis, numbers = ctx.saved_tensors
        return lyapunov(P, dQ - dP @ Y - Y @ dP, basis, numbers, ctx.method)


def lyapunov(P: Tensor, Q: Tensor, basis: Tensor, numbers: Tensor, method: str) -> Tensor:
    """Return Y with P Y + Y P = Q, differentiable in P and Q; the two tensors come from `root` of the same P."""
    node = _Lyapunov if torch.compiler.is_compiling() else _LyapunovForward
    return node.apply(P, Q, basis, numbers, method)


def inverse_sqrt(Sigma: Float[Tensor, "*batch n n"], *, method: str = "auto") -> Float[Tensor, "*batch n n"]:
    r"""Return the inverse square root of a batch of symmetric positive matrices.

    $$P = \Sigma^{-1/2} = D \Lambda^{-1/2} D^T, \qquad P \Sigma P = I$$

    It is differentiable to every order, also where eigenvalues are equal, in reverse and in forward mode, and may be
    mapped by `torch.vmap`. The symmetric part of `Sigma` is used. It is computed in float64 where the device has it.

    Args:
        Sigma: symmetric positive matrices, of a real floating dtype. Eigenvalues below 1024 eps times the largest (eps
            of the dtype computed in) count as that much. A matrix with NaN or infinity gives NaN and leaves the others
            right.
        method: `"eigh"` (eigendecomposition), `"newton"` (matrix products only), or `"auto"`, which is `"eigh"` on
            the CPU and `"newton"` on an accelerator.

    Returns:
        `P`, of the shape and dtype of `Sigma`, symmetric.

    Raises:
        TypeError: if `Sigma` is not a real floating tensor.
        ValueError: if the matrices are not square, or `method` is not known.

    Examples:
        >>> import torch, orthonorm as on
        >>> on.functional.inverse_sqrt(torch.diag(torch.tensor([4.0, 25.0])))
        tensor([[0.5000, 0.0000],
                [0.0000, 0.2000]])

    Source: equation (3) of the paper for P; the derivative is the divided difference of Daleckii and Krein;
    Mathematics (2), (4) and (6).
    """
    if not isinstance(Sigma, Tensor):
        raise TypeError(f"Sigma must be a torch.Tensor; got {type(Sigma).__name__}. Give V @ V.mT of a tensor V.")
    if Sigma.is_complex():
        raise TypeError(f"Sigma must be real; got {Sigma.dtype}. Give the Gram matrix of real rows.")
    if not Sigma.is_floating_point():
        raise TypeError(f"Sigma must be a floating tensor; got {Sigma.dtype}. Convert it with .float().")
    if Sigma.ndim < 2 or Sigma.shape[-1] != Sigma.shape[-2]:
        raise ValueError(
            f"Sigma must be square matrices (..., n, n); got the shape {tuple(Sigma.shape)}. Give V @ V.mT, not V."
        )
    if Sigma.numel() == 0:
        return Sigma.clone()
    S = Sigma.to(working_dtype(Sigma))
    node = _InverseSqrt if torch.compiler.is_compiling() else _InverseSqrtForward
    with exact_products(S.device, S.dtype):
        # The mean of S and its transpose; their sum would leave the range of the type before the mean does.
        P = node.apply(torch.lerp(S, S.mT, 0.5), choose_method(method, Sigma.device))[0]
    return P.to(Sigma.dtype)
