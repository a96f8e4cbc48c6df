"""Singular values of a convolution as an operator on whole images, which an orthogonal kernel does not fix."""

import math
from collections.abc import Callable, Sequence
from itertools import product
from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from orthonorm.functional._precision import working_dtype

__all__ = ["circular_singular_values", "linear_map_norm", "zero_padded_bound"]

# Note [the spectrum of a strided circular convolution]
# With circular padding and stride 1 the operator is block-circulant: the unitary DFT turns it into one matrix H(f) of
# shape out x in for each frequency f of the N grid points, so its singular values are those of all H(f) together.
# Keeping every s-th output folds s frequencies into one: with unitary transforms of N and N/s points,
#     Y(f) = s^{-1/2} sum_j H(f + j N/s) X(f + j N/s),   j = 0 ... s - 1,
# so frequency f of the N/s has the matrix s^{-1/2} [H(f) | H(f + N/s) | ...] of shape out x (s in). Where the kernel is
# placed, that is the padding's offset, multiplies each block by a phase, which changes no singular value.
#
# Note [zero padding]
# A convolution of N points with zero padding reads N inputs embedded in zeros and keeps some outputs. On a circle of
# M >= N + (k - 1) dilation points nothing wraps around, so it is a submatrix of the circular operator of M points (with
# the same stride, where s divides M): its norm is at most that operator's, whatever the amount of padding.


def circular_singular_values(
    weight: Float[Tensor, "out in *kernel"],
    size: Sequence[int],
    *,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Float[Tensor, " count"]:
    r"""Return all singular values of a convolution with circular padding, as an operator, the largest first.

    $$\sigma(A) = \bigcup_f \sigma\big(s^{-1/2} [H(f) \; H(f + N/s) \; \dots]\big)$$

    with H the discrete Fourier transform of the kernel

    The output has `size / stride` points: the padding is that which keeps the size.

    Args:
        weight: the kernel, `(out, in/groups, *kernel)`, any number of spatial dimensions.
        size: number of points of the input along each of them.
        stride: of the convolution, a number or one for each dimension.
        dilation: likewise.
        groups: the convolution's own groups.

    Returns:
        The singular values, in float64 where the device has it.

    Raises:
        ValueError: if a stride does not divide its size, or the numbers of dimensions differ.

    Examples:
        >>> import torch
        >>> circular_singular_values(torch.ones(1, 1, 3), [4]).round(decimals=6)
        tensor([3., 1., 1., 1.], dtype=torch.float64)

    Source: Sedghi, Gupta and Long, "The Singular Values of Convolutional Layers" (2019) for stride 1.
    """
    sizes, strides, dilations = _spatial(weight, size, stride, dilation)
    for n, s in zip(sizes, strides, strict=True):
        if n % s:
            raise ValueError(
                f"a circular convolution of stride {s} needs a size that {s} divides; got size {n}. Choose another "
                "size, or bound the zero-padded one with zero_padded_bound."
            )
    kernel = _embed(weight.detach().to(working_dtype(weight)), sizes, dilations)
    axes = tuple(range(-len(sizes), 0))
    H = torch.fft.fftn(kernel, dim=axes)
    # Split each frequency axis N into (s, N/s): the aliases f + j N/s, and f.
    folded = H.reshape(*H.shape[:2], *(m for n, s in zip(sizes, strides, strict=True) for m in (s, n // s)))
    dims = len(sizes)
    aliases = [2 + 2 * i for i in range(dims)]
    frequencies = [3 + 2 * i for i in range(dims)]
    blocks = folded.permute(*frequencies, 0, 1, *aliases).flatten(dims + 1) / prod(strides) ** 0.5
    blocks = blocks.flatten(0, dims - 1).unflatten(1, (groups, weight.shape[0] // groups))
    return torch.linalg.svdvals(blocks).flatten().sort(descending=True).values


def zero_padded_bound(
    weight: Float[Tensor, "out in *kernel"],
    size: Sequence[int],
    *,
    stride: int | Sequence[int] = 1,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> float:
    r"""Return an upper bound of the norm of a convolution with zero padding (or none), as an operator.

    $$\|A\| \le \max \sigma(\text{the circular convolution of } M \ge N + (k - 1) \, \text{dilation points})$$

    It holds for any amount of padding, and for the transposed convolution whose *output* has this size.

    Args:
        weight: the kernel, `(out, in/groups, *kernel)`.
        size: number of points of the input along each spatial dimension.
        stride: of the convolution, a number or one for each dimension.
        dilation: likewise.
        groups: the convolution's own groups.

    Returns:
        The bound. The zero-padded operator is a submatrix of the circular one (Note [zero padding]), so the bound is
        certain up to the round-off of a float64 decomposition.

    Raises:
        ValueError: if the numbers of dimensions differ.

    Examples:
        >>> import torch
        >>> zero_padded_bound(torch.ones(1, 1, 3), [8])
        3.0
    """
    sizes, strides, dilations = _spatial(weight, size, stride, dilation)
    circle = [
        -(-(n + (k - 1) * d) // s) * s for n, k, d, s in zip(sizes, weight.shape[2:], dilations, strides, strict=True)
    ]
    values = circular_singular_values(weight, circle, stride=strides, dilation=dilations, groups=groups)
    return float(values[0])


def linear_map_norm(
    apply: Callable[[Tensor], Tensor], example: Float[Tensor, "..."], *, iterations: int = 100
) -> float:
    r"""Return a lower bound of the norm of a linear map, which power iteration brings close to it.

    $$x \leftarrow A^T A x / |A^T A x|, \qquad \|A\| \ge |A x| / |x|$$

    The initial vector is pseudo-random and fixed: the global random state is neither used nor changed.

    Args:
        apply: a linear map, without a constant term, that autograd can differentiate.
        example: a tensor of the shape, dtype and device of its input; the values do not matter.
        iterations: number of steps.

    Returns:
        The bound, which is never above the norm, but for round-off. NaN where the linear map returns NaN or infinity.

    Raises:
        ValueError: if `iterations` is not positive.

    Examples:
        >>> import torch
        >>> A = torch.diag(torch.tensor([3.0, 1.0]))
        >>> round(linear_map_norm(lambda x: A @ x, torch.zeros(2)), 5)
        3.0
    """
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1; got {iterations}.")
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(example.shape, generator=generator, dtype=torch.float64, device=generator.device).to(example)
    best = 0.0
    with torch.inference_mode(False), torch.enable_grad():
        for _ in range(iterations):
            x = (x / x.norm().clamp_min(torch.finfo(x.dtype).tiny)).detach().requires_grad_()
            y = apply(x)
            size = float(y.detach().norm())
            if not math.isfinite(size):
                return math.nan
            best = max(best, size)
            (x,) = torch.autograd.grad(y, x, y.detach())
    return best


def _spatial(
    weight: Tensor, size: Sequence[int], stride: int | Sequence[int], dilation: int | Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    dims = weight.ndim - 2
    parts = [list(size), *([v] * dims if isinstance(v, int) else list(v) for v in (stride, dilation))]
    for name, part in zip(("size", "stride", "dilation"), parts, strict=True):
        if len(part) != dims or min(part, default=1) < 1:
            raise ValueError(
                f"{name} needs a positive number for each of the {dims} spatial dimensions of a weight of shape "
                f"{tuple(weight.shape)}; got {part}."
            )
    return parts[0], parts[1], parts[2]


def _embed(weight: Tensor, sizes: list[int], dilations: list[int]) -> Tensor:
    """Return the kernel on the grid of the input; what reaches beyond the grid wraps around."""
    kernel = weight.new_zeros(*weight.shape[:2], *sizes)
    for point in product(*map(range, weight.shape[2:])):
        place = tuple(i * d % n for i, d, n in zip(point, dilations, sizes, strict=True))
        kernel[(..., *place)] += weight[(..., *point)]
    return kernel
