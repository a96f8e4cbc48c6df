"""The autograd node of the transformation: batches of matrices to batches of matrices with orthonormal rows."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ._function_transforms import batch_first, refuse_nested_forward_mode
from ._inverse_sqrt import lyapunov
from ._matmul_precision import products_are_reduced
from ._methods import METHODS, choose_method, is_traced
from ._precision import check_precision, exact_products, working_dtype
from .forward._blocks import split
from .forward._float32 import transform_by_products, transform_by_values
from .forward._float64 import transform_in_float64

__all__ = ["PATHS", "Path", "choose_path", "map_batches"]

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

# Note [many matrices, one root]
# The node maps several batches of matrices, (b, n, d) each with its own d, and takes the root of all their Gram
# matrices, which are n x n whatever the layer, in one call. One batch of one layer is the usual case;
# `_many_weights.py` hands over a whole network. On a CPU what the cache does not hold is gone through in blocks that it
# does, which halves the time, twice: once for Sigma and, after the root, once for W.
#
# The adjoint is computed in the dtype of P, which is float64 where the forward pass was (`PATHS`); its two products
# with G, of n N_G d operations each, are in float32 for float32 weights, in all its digits.


class Path(NamedTuple):
    """One way to compute the transformation: the forward pass, and the method whose solvers its derivatives use."""

    transform: Callable[[Sequence[Tensor], bool], tuple[Tensor, ...]]
    """(batches, center) -> P, two tensors of the method, each W"""
    method: str


def _float64_by(method: str) -> Path:
    return Path(lambda Vs, center: transform_in_float64(Vs, center, method), method)


def _float32_by_values(Vs: Sequence[Tensor], center: bool) -> tuple[Tensor, ...]:
    found = transform_by_values(Vs, center)
    return transform_in_float64(Vs, center, "eigh") if found is None else found


PATHS: dict[str, Path] = {
    **{f"float64 by {method}": _float64_by(method) for method in METHODS},
    "float32 by values": Path(_float32_by_values, "eigh"),
    "float32 by products": Path(transform_by_products, "newton"),
}


def choose_path(V: Tensor, method: str, precision: str) -> str:
    """Return the table's key for a weight.

    Raises:
        ValueError: if the method or the precision is not known, or the device has no float64 and it is asked for.
    """
    check_precision(precision, V.device)
    chosen = choose_method(method, V.device)
    if working_dtype(V) != torch.float64:
        return "float32 by products"
    if V.dtype == torch.float64 or precision == "float64":
        return f"float64 by {chosen}"
    traced = is_traced()
    if traced and method == "auto":
        chosen = "newton"
    if chosen == "newton":
        # What is traced cannot change the setting of products.
        return "float64 by newton" if traced and products_are_reduced() else "float32 by products"
    by_values = chosen == "eigh" and V.device.type == "cpu" and not traced
    return "float32 by values" if by_values else f"float64 by {chosen}"


class _Orthonormalize(torch.autograd.Function):
    """`(center, path, *batches)` to `(P, two tensors of the method, *W)`: Note [many matrices, one root]."""

    @staticmethod
    def forward(center: bool, path: str, *Vs: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        return PATHS[path].transform(Vs, center)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], int]:
        center, path, *Vs = inputs
        size = info.batch_size
        Vs = [batch_first(V, dim, size) for V, dim in zip(Vs, in_dims[2:], strict=True)]
        counts = [V.shape[1] for V in Vs]
        P, basis, numbers, *Ws = _node().apply(center, path, *(V.flatten(0, 1) for V in Vs))
        small = [_unflatten(x, size, counts) for x in (P, basis, numbers)]
        return (*small, *(W.unflatten(0, (size, -1)) for W in Ws)), 0

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        ctx.center, path, *_ = inputs
        ctx.method = PATHS[path].method
        ctx.mark_non_differentiable(*output[1:3])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output)
        ctx.save_for_forward(*output)

    @staticmethod
    def backward(ctx: Any, H: Tensor | None, _basis: None, _numbers: None, *Gs: Tensor | None) -> Any:  # type: ignore[override]
        if H is None and all(G is None for G in Gs):
            return None, None, *Gs
        P, basis, numbers, *Ws = ctx.saved_tensors  # once: checkpointing allows no more
        G = [torch.zeros_like(W) if G is None else G for G, W in zip(Gs, Ws, strict=True)]
        inputs = ctx.center, ctx.method, H, P, basis, numbers, *Ws, *G
        with exact_products(Ws[0].device, Ws[0].dtype):
            # A zero that stands in for a missing G has no batch dimension under `is_grads_batched`, which hides the
            # batch from the node and from its rule for vmap: such a zero cannot be subtracted from in place.
            missing = any(G is None for G in Gs)
            if H is not None or missing or torch.is_grad_enabled() or torch.compiler.is_compiling():
                return None, None, *_adjoint(*inputs)
            mapped = torch._C._are_functorch_transforms_active()
            return None, None, *(_AdjointInPlace.apply(*inputs) if mapped else _adjoint(*inputs, in_place=True))


class _OrthonormalizeForward(_Orthonormalize):
    @staticmethod
    def jvp(ctx: Any, _center: None, _method: None, *dVs: Tensor | None) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        refuse_nested_forward_mode()
        P, basis, numbers, *saved = ctx.saved_tensors
        counts, Ws = [len(W) for W in saved], [W.to(P.dtype) for W in saved]
        dXs = [(torch.zeros_like(W) if dV is None else dV).to(P.dtype) for dV, W in zip(dVs, Ws, strict=True)]
        if ctx.center:
            dXs = [dX - dX.mean(-1, keepdim=True) for dX in dXs]
        PdXs = [p @ dX for p, dX in zip(P.split(counts), dXs, strict=True)]
        B = torch.cat([PdX @ W.mT for PdX, W in zip(PdXs, Ws, strict=True)])
        PL = P @ lyapunov(P, B + B.mT, basis, numbers, ctx.method)
        dWs = [PdX - pl @ W for PdX, pl, W in zip(PdXs, PL.split(counts), Ws, strict=True)]
        return -PL @ P, None, None, *(dW.to(W.dtype) for dW, W in zip(dWs, saved, strict=True))


# torch asks for the signature of `forward` at every call, and finds it here without taking the function apart.
_Orthonormalize.forward.__signature__ = inspect.signature(_Orthonormalize.forward)  # type: ignore[attr-defined]


def _node() -> type[_Orthonormalize]:
    # The forward-mode rule stands apart because Dynamo refuses a node that has one.
    return _Orthonormalize if torch.compiler.is_compiling() else _OrthonormalizeForward


def _adjoint(
    center: bool, method: str, H: Tensor | None, P: Tensor, basis: Tensor, numbers: Tensor, *pairs: Tensor,
    in_place: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return each dL/dV from H = dL/dP and `pairs`, the Ws and then each G = dL/dW: Note [the adjoint ...]."""
    kind = pairs[-1].dtype
    # Products of half precision would lose what W still has.
    dtype = torch.float64 if kind == torch.float64 else torch.float32
    wide = pairs if kind == dtype else [x.to(dtype) for x in pairs]
    Ws, Gs = wide[: len(wide) // 2], wide[len(wide) // 2 :]
    counts = [len(W) for W in Ws]
    As = [torch.bmm(G, W.mT) for G, W in zip(Gs, Ws, strict=True)]
    A = (As[0] if len(As) == 1 else torch.cat(As)).to(P.dtype)
    if in_place:
        PY = METHODS[method].adjoint(P, A, basis, numbers)
    else:
        PA = P @ A
        Q = PA + PA.mT if H is None else PA + PA.mT + P @ (H + H.mT) @ P
        PY = P @ lyapunov(P, Q, basis, numbers, method)
    subtract = torch.Tensor.baddbmm_ if in_place else torch.baddbmm
    grads = []
    for p, py, W, G in zip(split(P.to(dtype), counts), split(PY.to(dtype), counts), Ws, Gs, strict=True):
        grad = subtract(torch.bmm(p, G), py, W, alpha=-1)
        grads.append((grad.sub_(grad.mean(-1, keepdim=True)) if center else grad).to(kind))
    return tuple(grads)


class _AdjointInPlace(torch.autograd.Function):
    """The adjoint where nothing is differentiated any further: one new matrix of the size of the weight, not two.

    A node without a derivative, for the sake of its rule for vmap: torch has none for the product in place.
    """

    @staticmethod
    def forward(*inputs: Any) -> tuple[Tensor, ...]:  # type: ignore[override]
        return _adjoint(*inputs, in_place=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], int]:
        center, method, H, *tensors = inputs
        tensors = [batch_first(x, dim, info.batch_size) for x, dim in zip(tensors, in_dims[3:], strict=True)]
        small, pairs = tensors[:3], tensors[3:]
        counts = [W.shape[1] for W in pairs[: len(pairs) // 2]]
        small = [torch.cat([part.flatten(0, 1) for part in x.split(counts, 1)]) for x in small]
        grads = _AdjointInPlace.apply(center, method, H, *small, *(x.flatten(0, 1) for x in pairs))
        return tuple(grad.unflatten(0, (info.batch_size, -1)) for grad in grads), 0


def _unflatten(x: Tensor, size: int, counts: list[int]) -> Tensor:
    """Return (size, all matrices, ...) from the matrices of one batch after the other, `size` times each."""
    parts = x.split([size * count for count in counts])
    return torch.cat([part.unflatten(0, (size, -1)) for part in parts], 1)


def map_batches(Vs: Sequence[Float[Tensor, "_ n _"]], *, center: bool, path: str) -> tuple[Tensor, ...]:
    """Return W of each batch of matrices of `n` rows, of one dtype and device, the inverse square roots in one call."""
    with exact_products(Vs[0].device, Vs[0].dtype):
        return _node().apply(center, path, *Vs)[3:]
