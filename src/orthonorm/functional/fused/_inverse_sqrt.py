"""When the method "fused" runs its kernels, and the way to them: Triton is imported when the first one is launched."""

import os
from importlib.util import find_spec

import torch
from torch import Tensor

__all__ = ["LARGEST", "kernel_adjoint", "kernel_lyapunov", "kernel_root", "kernel_takes"]

# Rows and columns of the largest matrix the kernels take.
LARGEST = 128

# Whether the kernels can be compiled: Triton multiplies float64 matrices from 3.5 on, which came with torch 2.9.
_COMPILES = find_spec("triton") is not None and torch.__version__ >= "2.9" and torch.version.hip is None
# Triton's own switch, which it reads once, for kernels that run on the CPU without being compiled.
_INTERPRETS = _COMPILES and os.environ.get("TRITON_INTERPRET") == "1"


def kernel_takes(X: Tensor) -> bool:
    """Return whether kernels run on these matrices; where not, "fused" takes the steps of "newton" one by one."""
    runs = _INTERPRETS if X.device.type == "cpu" else _COMPILES and X.device.type == "cuda"
    return runs and X.dtype == torch.float64 and X.shape[-1] <= LARGEST and X.numel() > 0


def kernel_root(Sigma: Tensor, floor: float, steps: int) -> tuple[Tensor, Tensor]:
    """Return P = Sigma^{-1/2} (..., n, n) and its Frobenius norms (..., 1), in one launch."""
    from ._launch import root_operator

    return root_operator(Sigma, floor, steps)


def kernel_lyapunov(P: Tensor, Q: Tensor, bound: Tensor, floor: float, steps: int) -> Tensor:
    """Return Y with P Y + Y P = Q, in one launch; `bound` is at least the largest eigenvalue of P, (..., 1)."""
    from ._launch import lyapunov_operator

    return lyapunov_operator(P, Q, bound, False, floor, steps)


def kernel_adjoint(P: Tensor, A: Tensor, bound: Tensor, floor: float, steps: int) -> Tensor:
    """Return P Y with P Y + Y P = P A + A^T P, in one launch."""
    from ._launch import lyapunov_operator

    return lyapunov_operator(P, A, bound, True, floor, steps)
