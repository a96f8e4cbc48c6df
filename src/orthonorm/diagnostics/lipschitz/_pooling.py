"""Upper bounds of the Lipschitz constants of pooling layers."""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from orthonorm.functional.norms._norm_bounds import convolution_norm_bound, matrix_norm_bound, rounded_up

from ._layers import ULPS, Answer, Step, sqrt_up

__all__ = ["POOLING_RULES"]

# Note [constants of poolings]
# The largest of a window changes by at most the largest change in it. So max pooling has as its constant the square
# root of the number of windows that see one point: k windows of stride s and dilation d see at most ceil(k / (s / g))
# times a point, g = gcd(s, d); it is attained by an input of one high point. Average pooling is linear, and a Kronecker
# product of one matrix for each dimension, as the count that a window is divided by is a product, too.


def _each(value: Any, dims: int) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value] * dims


def _max_pooling(dims: int, step: Step) -> Answer:
    module = step.module
    if module.return_indices:
        return None
    parts = (_each(v, dims) for v in (module.kernel_size, module.stride, module.dilation))
    times = math.prod(-(-k * math.gcd(s, d) // s) for k, s, d in zip(*parts, strict=True))
    return sqrt_up(times), "windows that see a point"


def _average_pooling(dims: int, step: Step) -> Answer:
    module = step.module
    if getattr(module, "divisor_override", None) is not None:
        return None
    kernel, stride, padding = (_each(v, dims) for v in (module.kernel_size, module.stride, module.padding))
    if step.source is not None:
        rest = (module.ceil_mode, module.count_include_pad)
        matrices = [
            F.avg_pool1d(_points(n), k, s, p, *rest)
            for n, k, s, p in zip(step.source[-dims:], kernel, stride, padding, strict=True)
        ]
        return _product_of_norms(matrices), "norm at this size"
    if module.ceil_mode or (any(padding) and not module.count_include_pad):
        raise _size_needed(step)
    bound = 1.0
    for k, s in zip(kernel, stride, strict=True):
        window = torch.full((1, 1, k), 1 / k, dtype=torch.float64, device="cpu")
        bound *= convolution_norm_bound(window, stride=[s], dilation=[1], groups=1) * ULPS
    return bound * ULPS, "for all sizes"


def _adaptive_average(dims: int, step: Step) -> Answer:
    return _product_of_norms(_adaptive_windows(dims, step)), "norm at this size"


def _adaptive_max(dims: int, step: Step) -> Answer:
    if step.module.return_indices:
        return None
    windows = _adaptive_windows(dims, step)
    return sqrt_up(math.prod(int((A > 0).sum(-1).amax()) for A in windows)), "windows that see a point"


def _adaptive_windows(dims: int, step: Step) -> list[Tensor]:
    if step.source is None or step.target is None:
        raise _size_needed(step)
    return [F.adaptive_avg_pool1d(_points(n), m) for n, m in zip(step.source[-dims:], step.target[-dims:], strict=True)]


def _points(count: int) -> Tensor:
    """Return all inputs of one point, as a batch of one channel."""
    return torch.eye(count, dtype=torch.float64, device="cpu").unsqueeze(1)


def _product_of_norms(matrices: list[Tensor]) -> float:
    bound = 1.0
    for A in matrices:
        bound = rounded_up(bound * matrix_norm_bound(A.squeeze(1)) * ULPS)
    return bound


def _size_needed(step: Step) -> ValueError:
    return ValueError(
        f"{step.label}, a {step.module}, has no bound for all sizes of its input. Pass input_shape, the shape of "
        "one sample."
    )


POOLING_RULES = [
    (getattr(nn, f"{name}{dims}d").forward, partial(function, dims))
    for name, function in {
        "MaxPool": _max_pooling,
        "AvgPool": _average_pooling,
        "AdaptiveAvgPool": _adaptive_average,
        "AdaptiveMaxPool": _adaptive_max,
    }.items()
    for dims in (1, 2, 3)
]
