"""The paper's transformation W = Sigma^{-1/2} (V - mean), per group of rows, with its closed-form derivative."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .grouping import group_sizes, runs_of_equal_size
from .inverse_sqrt import lyapunov, root, working_dtype
from .roots import choose_method

__all__ = ["orthonormalize", "orthonormalize_groups"]

# Note [the adjoint of the transformation]
# V_C = V - mean, Sigma = V_C V_C^T, P = Sigma^{-1/2}, W = P V_C; hence V_C = P^{-1} W. Write G for dL/dW and A = G W^T.
# Through P the loss has the gradient G V_C^T = A P^{-1}; with the adjoint of Note [two primitives ...],
#     dL/dV_C = P (G - Y W),   where   P Y + Y P = P A + A^T P.
# In the eigenbasis Y_ij = (p_i A_ij + p_j A_ji) / (p_i + p_j), a weighted mean of two entries of A: no pole, no
# division by a small number, whatever the spectrum. If P itself is used and receives the gradient H, the right side
# gains P (H + H^T) P. Only W and the n x n matrices of a group are kept: no second copy of the weight.
# W and P are outputs of the node, so whoever differentiates `backward` once more reaches V through them.
#
# Forward mode, with B = P dV_C W^T:  dP = -P L(B + B^T) P  and  dW = P dV_C - P L(B + B^T) W.

# Note [precision of the transformation]
# A Gram matrix squares the condition number, so in float32 it loses W at a condition of 1e3 (error 2e-2). Sigma, its
# root and the product P V_C are therefore computed in float64 whatever the type of V, then rounded once: W is right
# to its own type, and TF32, reduced-precision products and autocast, none of which touch float64, change nothing.
# The adjoint takes its two products with G, of n N_G d operations each, in the type of V (in float32 at least): they
# are the cost of a step, and follow the user's setting for float32 products as the network's own gradients do.


_BLOCK_BYTES = 6 * 2**20


def _power_of_two_below(X: Tensor) -> Tensor:
    """Return the power of two below the largest entry of each matrix, by which it can be divided without rounding."""
    largest = X.abs().amax((-2, -1), keepdim=True)
    return torch.where(largest > 0, largest.log2().floor().exp2(), 1.0)


def _transform(
    X: Tensor, wider: bool, center: bool, method: str, out: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return W, P and the method's two tensors from V in the working type, which is overwritten."""
    if wider:
        if center:
            X.sub_(X.mean(-1, keepdim=True))
        P, basis, numbers = root(X @ X.mT, method)
        return torch.matmul(P, X, out=out), P, basis, numbers
    # No wider type is left: a mean or Sigma could overflow, and Sigma is good to eps cond(V)^2 only. So V is scaled
    # first, and one step of Newton's iteration for the polar factor squares the error that remains.
    scale = _power_of_two_below(X)
    X.div_(scale)
    if center:
        X.sub_(X.mean(-1, keepdim=True))
    P, basis, numbers = root(X @ X.mT, method)
    W = torch.matmul(P, X, out=out)
    return 1.5 * W - (0.5 * (W @ W.mT)) @ W, P / scale, basis, numbers / scale.squeeze(-1)


def _matrices_per_block(V: Tensor) -> int:
    """Return how many matrices to map at once: on a CPU as many as the cache holds, which halves the time.

    A traced graph gets them all at once: an exported program may not write into the views of a block.
    """
    if V.device.type != "cpu" or torch.compiler.is_compiling():
        return V.shape[0]
    return max(1, _BLOCK_BYTES // (8 * V.shape[-2] * V.shape[-1]))


class _Orthonormalize(torch.autograd.Function):
    @staticmethod
    def forward(V: Tensor, center: bool, method: str) -> tuple[Tensor, ...]:  # type: ignore[override]
        dtype = working_dtype(V)
        block = _matrices_per_block(V)
        if V.shape[0] <= block:
            W, *rest = _transform(V.to(dtype, copy=True), V.dtype != dtype, center, method)
            return W.to(V.dtype), *rest
        # Two buffers serve all blocks: memory that is new to the process costs as much as the arithmetic on it.
        X, product = (torch.empty(block, *V.shape[1:], dtype=dtype, device=V.device) for _ in range(2))
        W = torch.empty_like(V)
        small: list[tuple[Tensor, Tensor, Tensor]] = []
        for v, w in zip(V.split(block), W.split(block), strict=True):
            x = X[: v.shape[0]].copy_(v)
            result, P, basis, numbers = _transform(x, V.dtype != dtype, center, method, product[: v.shape[0]])
            w.copy_(result)
            small.append((P, basis, numbers))
        return W, *(torch.cat(parts) for parts in zip(*small, strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], int]:  # noqa: ARG004  (torch's signature)
        V, center, method = inputs
        V = V.movedim(in_dims[0] or 0, 0)
        results = _node().apply(V.flatten(0, 1), center, method)
        return tuple(result.unflatten(0, V.shape[:2]) for result in results), 0

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        W, P, basis, numbers = output
        _, ctx.center, ctx.method = inputs
        ctx.mark_non_differentiable(basis, numbers)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(W, P, basis, numbers)
        ctx.save_for_forward(W, P, basis, numbers)

    @staticmethod
    def backward(ctx: Any, G: Tensor | None, H: Tensor | None, *_: Any) -> tuple[Tensor | None, None, None]:  # type: ignore[override]
        if G is None and H is None:
            return None, None, None
        W, P, basis, numbers = ctx.saved_tensors
        G = torch.zeros_like(W) if G is None else G
        rest = W, P, basis, numbers, ctx.center, ctx.method
        with torch.autocast(W.device.type, enabled=False):
            if H is not None or torch.is_grad_enabled() or torch.compiler.is_compiling():
                return _adjoint(G, H, *rest), None, None
            return _AdjointInPlace.apply(G, *rest), None, None


class _OrthonormalizeForward(_Orthonormalize):
    @staticmethod
    def jvp(ctx: Any, dV: Tensor, *_: Any) -> tuple[Tensor, Tensor, None, None]:  # type: ignore[override]
        W, P, basis, numbers = ctx.saved_tensors
        dX = (dV - dV.mean(-1, keepdim=True) if ctx.center else dV).to(P.dtype)
        PdX, W64 = P @ dX, W.to(P.dtype)
        B = PdX @ W64.mT
        PL = P @ lyapunov(P, B + B.mT, basis, numbers, ctx.method)
        return (PdX - PL @ W64).to(W.dtype), -PL @ P, None, None


def _node() -> type[_Orthonormalize]:
    # The forward-mode rule stands apart because Dynamo refuses a node that has one.
    return _Orthonormalize if torch.compiler.is_compiling() else _OrthonormalizeForward


def _adjoint(
    G: Tensor, H: Tensor | None, W: Tensor, P: Tensor, basis: Tensor, numbers: Tensor, center: bool, method: str,
    *, in_place: bool = False,
) -> Tensor:  # fmt: skip
    """Return dL/dV from G = dL/dW and H = dL/dP: Note [the adjoint of the transformation]."""
    dtype = torch.promote_types(W.dtype, torch.float32)  # bfloat16 products would lose what W still has
    G_, W_ = G.to(dtype), W.to(dtype)
    PA = P @ (G_ @ W_.mT).to(P.dtype)
    Q = PA + PA.mT
    if H is not None:
        Q = Q + P @ (H + H.mT) @ P
    PY = P @ lyapunov(P, Q, basis, numbers, method)
    grad = P.to(dtype) @ G_
    subtract = torch.Tensor.baddbmm_ if in_place else torch.baddbmm
    grad = subtract(grad, PY.to(dtype), W_, alpha=-1)
    if center:
        grad.sub_(grad.mean(-1, keepdim=True))
    return grad.to(W.dtype)


class _AdjointInPlace(torch.autograd.Function):
    """The adjoint where nothing is differentiated any further: one new matrix of the size of the weight, not two.

    A node without a derivative, for the sake of its rule for vmap: torch has none for the product in place.
    """

    @staticmethod
    def forward(*inputs: Any) -> Tensor:  # type: ignore[override]
        G, *others = inputs
        return _adjoint(G, None, *others, in_place=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
        *tensors, center, method = inputs
        batched = [
            x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(tensors, in_dims[: len(tensors)], strict=True)
        ]
        grad = _AdjointInPlace.apply(*(x.flatten(0, 1) for x in batched), center, method)
        return grad.unflatten(0, batched[0].shape[:2]), 0


def orthonormalize(
    V: Float[Tensor, "*batch n d"],
    *,
    group_size: int | None = None,
    center: bool = True,
    grouping: str = "balanced",
    method: str = "auto",
) -> Float[Tensor, "*batch n d"]:
    r"""Return the matrix with orthonormal rows nearest to the centred `V`, group of rows by group of rows.

    $$W = \Sigma^{-1/2} V_C, \quad V_C = V - \tfrac1d V 1 1^T, \quad \Sigma = V_C V_C^T, \qquad W W^T = I$$

    Rows are orthonormal within a group; rows of different groups are not orthogonal to each other. `W` does not depend
    on the size of `V`. Gradients are exact and finite for every spectrum of `V`, equal singular values included, in
    reverse and forward mode and to second order; `torch.vmap` and `torch.compile` work.

    Args:
        V: one or more matrices, of a real floating type. Sigma is formed in float64 where the device has it.
        group_size: rows a group, at most `d - 1` with centring and `d` without; None for that limit.
        center: subtract each row's mean first, as the paper does.
        grouping: `"balanced"` (groups as even as possible) or `"tail"` (full groups and a smaller last one).
        method: how Sigma^{-1/2} is computed: `"eigh"`, `"newton"`, or `"auto"`.

    Returns:
        `W`, of the shape and type of `V`. Where rows of a group are dependent its lost directions come out small
        (singular values below 1, often far below) and finite; a group with NaN or infinity comes out as NaN and leaves
        the others right.

    Raises:
        TypeError: if `V` is not a real floating tensor.
        ValueError: if `V` is not a matrix, or its groups cannot be orthonormal.

    Example:
        >>> import torch, orthonorm as on
        >>> V = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
        >>> W = on.functional.orthonormalize(V, group_size=4)
        >>> torch.dist(W[:4] @ W[:4].T, torch.eye(4)) < 1e-6, W.sum(1).abs().max() < 1e-6
        (tensor(True), tensor(True))

    Source: equation (3) and the group based orthogonalization of the paper, with errata 1 to 3.
    """
    if not isinstance(V, Tensor):
        raise TypeError(f"V must be a torch.Tensor; got {type(V).__name__}. Make it one with torch.as_tensor(V).")
    if V.is_complex():
        raise TypeError(
            f"V must be real; got {V.dtype}. Orthonormalize torch.view_as_real parts, or use a unitary map."
        )
    if not V.is_floating_point():
        raise TypeError(f"V must be a floating tensor; got {V.dtype}. Convert it with .float().")
    if V.ndim < 2:
        raise ValueError(f"V must be matrices (..., n, d); got the shape {tuple(V.shape)}. Add a dimension.")
    n, d = V.shape[-2:]
    sizes = group_sizes(n, d, group_size=group_size, center=center, grouping=grouping)
    return orthonormalize_groups(V, sizes, center=center, method=method)


def orthonormalize_groups(
    V: Float[Tensor, "*batch n d"], sizes: tuple[int, ...], *, center: bool, method: str
) -> Float[Tensor, "*batch n d"]:
    """Return `orthonormalize` of `V` for groups of rows of the given sizes, equal neighbours in one batch."""
    method = choose_method(method, V.device)
    if V.numel() == 0:
        return V.clone()
    runs = runs_of_equal_size(sizes)
    # A single part is not split: the gradient of a split is one more copy of the weight.
    parts = [V] if len(runs) == 1 else V.split([size * count for size, count in runs], dim=-2)
    maps = [
        # Never a reshape to -1: torch.compile is lost in its quotient where shapes vary.
        _node().apply(part.unflatten(-2, (count, size)).flatten(0, -3), center, method)[0].reshape(part.shape)
        for part, (size, count) in zip(parts, runs, strict=True)
    ]
    return maps[0] if len(maps) == 1 else torch.cat(maps, dim=-2)
