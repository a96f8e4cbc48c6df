"""The operators that launch the kernels of the method "fused": opaque to `torch.compile`, with a rule for vmap."""

# A kernel's constants are annotated as such, and passed as plain numbers.
# pyright: reportArgumentType=false

from contextlib import nullcontext
from typing import Any

import torch
import triton
from torch import Tensor

from orthonorm.functional._function_transforms import batch_first

from ._kernels import LYAPUNOV_BUFFERS, ROOT_BUFFERS, lyapunov_kernel, root_kernel

__all__ = ["launch_options", "lyapunov_operator", "root_operator"]

# A tile of 64 x 64 and slices of 32: Note [where the matrices live].
_TILE, _DEPTH = 64, 32


def launch_options(n: int) -> dict[str, int]:
    """Return the sizes for which a kernel on n x n matrices is compiled, and how it is launched."""
    N = max(16, triton.next_power_of_2(n))  # a product takes no factor smaller than 16
    warps = {16: 1, 32: 4}.get(N, 8)
    launch = {"num_warps": warps, "num_stages": 1, "enable_fp_fusion": True}
    return {"N": N, "TILE": min(N, _TILE), "DEPTH": min(N, _DEPTH), **launch}


@torch.library.custom_op("orthonorm::fused_root", mutates_args=())
def root_operator(Sigma: Tensor, floor: float, steps: int) -> tuple[Tensor, Tensor]:
    """Return P = Sigma^{-1/2} (..., n, n) and its norms (..., 1), by `steps` of Newton's iteration."""
    n = Sigma.shape[-1]
    P, bound = torch.empty_like(Sigma, memory_format=torch.contiguous_format), Sigma.new_empty((*Sigma.shape[:-2], 1))
    options = launch_options(n)
    scratch = Sigma.new_empty(bound.numel(), ROOT_BUFFERS.value, options["N"], options["N"])
    with _on_device_of(Sigma):
        root_kernel[(bound.numel(),)](Sigma.contiguous(), P, bound, scratch, n, steps, FLOOR=floor, **options)
    return P, bound


@root_operator.register_fake
def _(Sigma: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    P = torch.empty_like(Sigma, memory_format=torch.contiguous_format)
    return P, Sigma.new_empty((*Sigma.shape[:-2], 1))


@root_operator.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], Sigma: Tensor, floor: float, steps: int) -> tuple:
    return root_operator(batch_first(Sigma, in_dims[0], info.batch_size), floor, steps), (0, 0)


@torch.library.custom_op("orthonorm::fused_lyapunov", mutates_args=())
def lyapunov_operator(P: Tensor, Q: Tensor, bound: Tensor, adjoint: bool, floor: float, steps: int) -> Tensor:
    """Return Y with P Y + Y P = Q, or where `adjoint` P Y with P Y + Y P = P Q + Q^T P."""
    n = P.shape[-1]
    out, options = torch.empty_like(P, memory_format=torch.contiguous_format), launch_options(P.shape[-1])
    scratch = P.new_empty(bound.numel(), LYAPUNOV_BUFFERS.value, options["N"], options["N"])
    inputs = P.contiguous(), Q.contiguous(), bound.contiguous()
    with _on_device_of(P):
        lyapunov_kernel[(bound.numel(),)](*inputs, out, scratch, n, steps, ADJOINT=adjoint, FLOOR=floor, **options)
    return out


@lyapunov_operator.register_fake
def _(P: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(P, memory_format=torch.contiguous_format)


@lyapunov_operator.register_vmap
def _(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Tensor, int]:
    tensors = [batch_first(x, dim, info.batch_size) for x, dim in zip(inputs[:3], in_dims[:3], strict=True)]
    # Under vmap a tensor that is not mapped may be short of batch dimensions of its own.
    batch = torch.broadcast_shapes(tensors[0].shape[:-2], tensors[1].shape[:-2])
    P, Q = (x.expand(*batch, *x.shape[-2:]) for x in tensors[:2])
    return lyapunov_operator(P, Q, tensors[2].expand(*batch, 1), *inputs[3:]), 0


def _on_device_of(x: Tensor) -> Any:
    return torch.cuda.device(x.device) if x.device.type == "cuda" else nullcontext()
