"""Upper bounds of the Lipschitz constants of linear maps and normalization layers, from their parameters."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from orthonorm.functional._precision import in_float64
from orthonorm.functional.norms._norm_bounds import convolution_norm_bound, matrix_norm_bound, rounded_up

__all__ = ["LAYER_RULES", "ULPS", "Answer", "Step", "padding_norm", "sqrt_up"]

Answer = tuple[float, str] | None
"""A bound and how it was found; None where none is known."""


@dataclass(frozen=True)
class Step:
    """One module of a network, as the rules see it."""

    label: str
    """What messages call it."""
    module: Any
    source: torch.Size | None = None
    """Shape of its input; None where it is not known."""
    target: torch.Size | None = None
    """Shape of its output, likewise."""


ULPS = 1 + 2.0**-50
"""What a few rounded operations are at most off by."""


def sqrt_up(count: int) -> float:
    """Return a square root, rounded up unless it is an integer.

    Examples:
        >>> sqrt_up(9), sqrt_up(2) ** 2 > 2
        (3.0, True)
    """
    root = math.sqrt(count)
    return root if root.is_integer() and root * root == count else rounded_up(root)


def padding_norm(pads: Sequence[tuple[int, int]], mode: str, size: Sequence[int] | None) -> float:
    """Return the norm of a padding by copies: the square root of how often an input occurs, for all sizes or one.

    Args:
        pads: how many points are added before and after, for each dimension.
        mode: "reflect", "replicate" or "circular".
        size: number of points along each dimension; None for a bound that holds for all.

    Examples:
        >>> round(padding_norm([(2, 2)], "replicate", [5]), 6), padding_norm([(3, 0)], "replicate", [5])
        (1.732051, 2.0)
    """
    times = 1
    for i, (low, high) in enumerate(pads):
        if size is None:
            times *= 1 + low + high if mode == "replicate" else 1 + (low > 0) + (high > 0)
        else:
            points = torch.arange(size[i], dtype=torch.float64, device="cpu").view(1, 1, -1)
            times *= int(F.pad(points, (low, high), mode).flatten().long().bincount().amax())
    return sqrt_up(times)


def _stored_weight(step: Step) -> Tensor:
    """Return the weight as the next forward pass will have it."""
    module, label = step.module, step.label
    if "weight" in module.__dict__:
        raise ValueError(
            f"{label} has a weight that a hook rewrites before each forward (torch's older spectral_norm, weight_norm "
            "or pruning), so it is not known here. Remove that hook first, or use torch.nn.utils.parametrizations."
        )
    return module.weight.detach()


def _linear(step: Step) -> Answer:
    weight = _stored_weight(step)
    if weight.is_complex():
        return None
    if not bool(torch.isfinite(weight).all()):
        return math.nan, "not finite"
    return matrix_norm_bound(in_float64(weight)), "norm of the matrix"


def _convolution(step: Step) -> Answer:
    module = step.module
    weight = _stored_weight(step)
    if weight.is_complex():
        return None
    if not bool(torch.isfinite(weight).all()):
        return math.nan, "not finite"
    if weight.numel() == 0:
        return 0.0, "empty"
    dims = len(module.kernel_size)
    options = {"stride": module.stride, "dilation": module.dilation, "groups": module.groups}
    # A transposed convolution is the adjoint of the convolution from its output to its input, with the same kernel.
    shape = step.target if module.transposed else step.source
    size = None if shape is None else list(shape[-dims:])
    scope = "for all sizes" if size is None else "at this size"
    if module.padding_mode == "zeros":
        return convolution_norm_bound(weight, **options, size=size), f"zero padding, {scope}"
    flat = module._reversed_padding_repeated_twice  # of the last dimension first
    pads = list(zip(flat[::2], flat[1::2], strict=True))[::-1]
    if module.padding_mode == "circular" and _keeps_the_circle(step, pads):
        return convolution_norm_bound(weight, **options, size=size, circular=size is not None), f"circular, {scope}"
    padded = None if size is None else [n + low + high for n, (low, high) in zip(size, pads, strict=True)]
    norm = convolution_norm_bound(weight, **options, size=padded)
    return rounded_up(norm * padding_norm(pads, module.padding_mode, size)), f"padding and kernel, {scope}"


def _keeps_the_circle(step: Step, pads: list[tuple[int, int]]) -> bool:
    """Return whether a circular convolution computes each output once, those of a stride that divides the size."""
    module, dims = step.module, len(pads)
    if step.source is None or step.target is None:
        reach = [(k - 1) * d for k, d in zip(module.kernel_size, module.dilation, strict=True)]
        return all(s == 1 for s in module.stride) and [low + high for low, high in pads] == reach
    sizes = zip(step.source[-dims:], step.target[-dims:], module.stride, strict=True)
    return all(n == m * s for n, m, s in sizes)


# Note [constants of normalization layers]
# In evaluation mode a BatchNorm multiplies each channel by gamma / sqrt(variance + eps), its constant. A LayerNorm has
# the Jacobian diag(gamma) (P - z z^T / n) / sigma, with sigma^2 = variance + eps, z what it normalizes to, of
# |z|^2 < n, and P the projection that takes the mean off. Its norm is at most max |gamma| / sqrt eps, and is that for
# constant gamma at inputs without variance: 316 times max |gamma| for eps = 1e-5. So it is for its relatives.


def _largest(weight: Tensor | None, divisor: Tensor | float) -> float:
    scale = 1.0 if weight is None else in_float64(weight.detach()).abs().cpu()
    return float(torch.as_tensor(scale / divisor).amax()) * ULPS


def _running_statistics(step: Step) -> Answer:
    module = step.module
    if module.running_var is None:
        return None  # those of the batch, which tie its samples to each other
    return _largest(module.weight, (in_float64(module.running_var).cpu() + module.eps).sqrt()), "running statistics"


def _own_statistics(step: Step) -> Answer:
    module = step.module
    eps = module.eps
    if eps is None:  # that of the input's type
        eps = torch.finfo(torch.float64 if module.weight is None else module.weight.dtype).eps
    return (_largest(module.weight, math.sqrt(eps)) if eps > 0 else math.inf), "at inputs without variance"


def _instance_statistics(step: Step) -> Answer:
    return (_running_statistics if step.module.track_running_stats else _own_statistics)(step)


def _padding(step: Step) -> Answer:
    module = step.module
    modes = (
        ("reflect", nn.modules.padding._ReflectionPadNd),
        ("replicate", nn.modules.padding._ReplicationPadNd),
        ("circular", nn.modules.padding._CircularPadNd),
    )
    mode = next(mode for mode, kind in modes if isinstance(module, kind))
    pads = list(zip(module.padding[::2], module.padding[1::2], strict=True))[::-1]
    if min(module.padding) < 0:
        return None
    return padding_norm(pads, mode, None if step.source is None else step.source[-len(pads) :]), "copies of an input"


_Rule = Callable[[Step], Answer]
# By the function that computes: a class that derives from a layer and computes otherwise is another map.
LAYER_RULES: list[tuple[Any, _Rule]] = [
    (nn.Linear.forward, _linear),
    *(
        (kind.forward, _convolution)
        for kind in (
            nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
        )
    ),
    (nn.BatchNorm2d.forward, _running_statistics),
    (nn.SyncBatchNorm.forward, _running_statistics),
    (nn.InstanceNorm2d.forward, _instance_statistics),
    *((kind.forward, _own_statistics) for kind in (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)),
    *((kind.forward, _padding) for kind in (nn.ReflectionPad1d, nn.ReplicationPad1d, nn.CircularPad1d)),
]  # fmt: skip
