"""The autograd node of the transformation: batches of matrices to batches of matrices with orthonormal rows."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ._function_transforms import batch_first, refuse_nested_forward_mode
from ._inverse_sqrt import lyapunov, root
from ._methods import METHODS
from ._precision import keeping_precision, power_of_two_below, without_autocast, working_dtype

__all__ = ["map_batches"]

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


# Note [many matrices, one root]
# The node maps several batches of matrices, (b, n, d) each with its own d, and takes the root of all their Gram
# matrices, which are n x n whatever the layer, in one call. One batch of one layer is the usual case; `together.py`
# hands over a whole network. On a CPU what the cache does not hold is gone through in blocks that it does, which halves
# the time, twice: once for Sigma and, after the root, once for W.

_BLOCK_BYTES = 6 * 2**20


def _blocks(V: Tensor) -> tuple[Tensor, ...]:
    """Return the batch in blocks to be mapped at once; all of it where it is traced, or not on a CPU."""
    if V.device.type != "cpu" or torch.compiler.is_compiling():
        return (V,)
    block = max(1, _BLOCK_BYTES // (8 * V.shape[-2] * V.shape[-1]))
    return (V,) if V.shape[0] <= block else V.split(block)


class _Buffer:
    """Memory of one type that serves one block after the other, seen in the shape of each.

    Memory that is new to the process costs as much as the arithmetic on it.
    """

    def __init__(self, blocks: Sequence[Tensor], dtype: torch.dtype) -> None:
        self.memory = torch.empty(max(block.numel() for block in blocks), dtype=dtype, device=blocks[0].device)
        self.views: dict[torch.Size, Tensor] = {}

    def like(self, block: Tensor) -> Tensor:
        if block.shape not in self.views:
            self.views[block.shape] = self.memory[: block.numel()].view(block.shape)
        return self.views[block.shape]


def _prepare(V: Tensor, scale: Tensor | None, buffer: _Buffer | None = None) -> Tensor:
    """Return V in the working type, divided by the scale, in memory of its own or the buffer's."""
    X = V.to(working_dtype(V), copy=True) if buffer is None else buffer.like(V).copy_(V)
    return X if scale is None else X.div_(scale)


def _multiply(P: Tensor, X: Tensor, polish: bool, buffer: _Buffer | None = None) -> Tensor:
    """Return W = P X; a step of Newton's iteration for the polar factor squares the error that remains."""
    W = torch.bmm(P, X, out=None if buffer is None else buffer.like(X))
    return torch.baddbmm(W, torch.bmm(W, W.mT), W, beta=1.5, alpha=-0.5) if polish else W


def _transform(Vs: Sequence[Tensor], center: bool, method: str) -> tuple[Tensor, ...]:
    """Return P and the method's two tensors for all matrices, then the W of each batch."""
    dtype = working_dtype(*Vs)
    # No type is wider than float64: a mean or Sigma could overflow, and Sigma is good to eps cond(V)^2 only. So V is
    # scaled first, and the product is polished.
    widest = Vs[0].dtype == dtype
    blocks = [block for V in Vs for block in _blocks(V)]
    scales = [power_of_two_below(block) if widest else None for block in blocks]
    counts = [len(block) for block in blocks]
    once = len(blocks) == 1 or 8 * sum(block.numel() for block in blocks) <= _BLOCK_BYTES
    X, product = (None, None) if once else (_Buffer(blocks, dtype), _Buffer(blocks, dtype))
    Xs, means, grams = [], [], []
    for V, scale in zip(blocks, scales, strict=True):
        x = _prepare(V, scale, X)
        if center:
            means.append(x.mean(-1, keepdim=True))
            x.sub_(means[-1])
        grams.append(torch.bmm(x, x.mT))
        Xs.append(x)
    P, basis, numbers = root(grams[0] if len(grams) == 1 else torch.cat(grams), method)
    parts = P.split(counts) if len(counts) > 1 else (P,)
    if once:
        Ws = [_multiply(p, x, widest).to(Vs[0].dtype) for p, x in zip(parts, Xs, strict=True)]
    else:
        Ws = [torch.empty_like(V) for V in Vs]
        results = [block for W in Ws for block in _blocks(W)]
        for i, (V, scale, p, W) in enumerate(zip(blocks, scales, parts, results, strict=True)):
            x = _prepare(V, scale, X)
            W.copy_(_multiply(p, x.sub_(means[i]) if center else x, widest, product))
    if widest:
        scale = torch.cat(scales)  # type: ignore[arg-type]
        P, numbers = P / scale, numbers / scale.squeeze(-1)
    return P, basis, numbers, *Ws


class _Orthonormalize(torch.autograd.Function):
    """`(center, method, *batches)` to `(P, two tensors of the method, *W)`: Note [many matrices, one root]."""

    @staticmethod
    def forward(center: bool, method: str, *Vs: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        return _transform(Vs, center, method)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[tuple[Tensor, ...], int]:
        center, method, *Vs = inputs
        size = info.batch_size
        Vs = [batch_first(V, dim, size) for V, dim in zip(Vs, in_dims[2:], strict=True)]
        counts = [V.shape[1] for V in Vs]
        P, basis, numbers, *Ws = _node().apply(center, method, *(V.flatten(0, 1) for V in Vs))
        small = [_unflatten(x, size, counts) for x in (P, basis, numbers)]
        return (*small, *(W.unflatten(0, (size, -1)) for W in Ws)), 0

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        ctx.center, ctx.method, *_ = inputs
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
        with without_autocast(Ws[0].device):
            # A zero that stands in for a missing G has no batch dimension under `is_grads_batched`, which hides the
            # batch from the node and from its rule for vmap: such a zero cannot be subtracted from in place.
            missing = any(G is None for G in Gs)
            if H is not None or missing or torch.is_grad_enabled() or torch.compiler.is_compiling():
                return None, None, *_adjoint(*inputs)
            return None, None, *_AdjointInPlace.apply(*inputs)


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


def _node() -> type[_Orthonormalize]:
    # The forward-mode rule stands apart because Dynamo refuses a node that has one.
    return _Orthonormalize if torch.compiler.is_compiling() else _OrthonormalizeForward


def _adjoint(
    center: bool, method: str, H: Tensor | None, P: Tensor, basis: Tensor, numbers: Tensor, *pairs: Tensor,
    in_place: bool = False,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return each dL/dV from H = dL/dP and `pairs`, the Ws and then each G = dL/dW: Note [the adjoint ...]."""
    kind = pairs[-1].dtype
    dtype = torch.promote_types(kind, torch.float32)  # bfloat16 products would lose what W still has
    wide = [x.to(dtype) for x in pairs]
    Ws, Gs = wide[: len(wide) // 2], wide[len(wide) // 2 :]
    counts = [len(W) for W in Ws]
    A = torch.cat([torch.bmm(G, W.mT) for G, W in zip(Gs, Ws, strict=True)])
    A = A.to(P.dtype)
    if in_place:
        PY = METHODS[method].adjoint(P, A, basis, numbers)
    else:
        PA = P @ A
        Q = PA + PA.mT if H is None else PA + PA.mT + P @ (H + H.mT) @ P
        PY = P @ lyapunov(P, Q, basis, numbers, method)
    subtract = torch.Tensor.baddbmm_ if in_place else torch.baddbmm
    grads = []
    for p, py, W, G in zip(P.to(dtype).split(counts), PY.to(dtype).split(counts), Ws, Gs, strict=True):
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


def map_batches(Vs: Sequence[Float[Tensor, "_ n _"]], *, center: bool, method: str) -> tuple[Tensor, ...]:
    """Return W of each batch of matrices of `n` rows, of one type and device, all their roots taken in one call."""
    with keeping_precision(*Vs):
        return _node().apply(center, method, *Vs)[3:]
