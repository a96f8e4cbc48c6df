"""Upper bounds of operator norms that hold in spite of rounding, of matrices and of convolutions."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from orthonorm.functional._precision import in_float64

__all__ = ["convolution_norm_bound", "matrix_norm_bound", "rounded_up"]

# Note [a norm that rounding cannot put below the truth]
# Let G = A A^H have n rows, A d columns, u = 2^-53, and L = |A|^2. Complex sums and products err by at most 4 u where
# real ones err by u. In any order of summation
#   - the computed G differs from the true one by at most (d + 1) 4u |A|_F^2 <= n (d + 1) 4u L in norm;
#   - where the Cholesky factorization of s I - G ends, with its real diagonal rounded by at most u s, s I - G has no
#     eigenvalue below -(n + 2) 4u trace(s I - G) >= -n (n + 2) 4u s (Rump 2006).
# So L <= s (1 + n (n + 3) 4u) + n (d + 1) 4u L, and |A| <= sqrt(s) (1 + m) with m = n (n + d + 5) 4u: halving by the
# square root leaves more than the terms of second order and the last roundings need. m is 2e-11 for 64 x 784 and 2e-8
# for 4096 x 4096. Nothing is asked of the eigenvalues that propose s: where the factorization fails, s grows.
#
# Note [a strided convolution is one of stride 1]
# Output p reads the inputs p s + i d (i the tap, d the dilation). With i d = s q + r the input becomes s channels,
# x_r(m) = x(s m + r), and the kernel one of taps q with stride 1 on them: both hold the same numbers. Its matrix at the
# frequency f is H(f) = sum_q W_q exp(2 pi i f q). Its norm over M frequencies is that of a circle of M points exactly,
# and a bound for inputs with zeros around them where nothing wraps around (Note [zero padding]).
#
# Note [all frequencies from some]
# u^H H(f) v is a trigonometric polynomial. Its real part, at the phase that makes it largest and with the frequencies
# centred, has the degree Q / 2 in each dimension, Q the last tap. At the distance x <= pi / Q from its largest value t
# it is at least t cos(Q x / 2) (a lemma of M. Riesz), and of M points one is within pi / M. So the norm over all
# frequencies is at most that over M of them by cos(pi Q / (2 M)), in each dimension: with M = 16 Q, 0.5%.
#
# Note [rounding of the frequencies]
# A phase is a sum of at most three fractions whose numerators are exact: with it cosine and sine err by at most 110 u.
# H(f), a sum of T taps, errs by at most (110 + 4 T) u sum_t |W_t| by entry, so by (110 + 4 T) u sqrt(T) |W|_F in norm.
_UNIT = 2.0**-53
_ENTRIES = 2**22
"""Of the matrices that are looked at together, 64 MB."""


def rounded_up(value: float) -> float:
    """Return the next larger number: what a rounded product or quotient of floats is at most."""
    return math.nextafter(value, math.inf)


def matrix_norm_bound(A: Float[Tensor, "*batch n d"] | Any) -> float:
    r"""Return an upper bound of the largest norm of a batch of matrices, real or complex, rounding included.

    $$\max_b \|A_b\|_2 \le s \, (1 + 4 u \, n (n + d + 5)), \qquad s^2 I - A_b A_b^H \text{ has a Cholesky factor}$$

    Args:
        A: finite matrices, in float64 or complex128.

    Returns:
        The bound, above the norm by less than twice the factor.

    Examples:
        >>> bound = matrix_norm_bound(torch.diag(torch.tensor([3.0, 1.0], dtype=torch.float64)))
        >>> 3 <= bound < 3 + 1e-12
        True

    Source: S. M. Rump, "Verification of positive definiteness" (2006).
    """
    largest = float(A.abs().amax()) if A.numel() else 0.0
    if largest == 0:
        return 0.0
    power = 2.0 ** min(math.frexp(largest)[1], 1023)  # exact, and no square leaves the range
    A = (A / power).flatten(0, -3) if A.ndim > 2 else (A / power).unsqueeze(0)
    if A.shape[-2] > A.shape[-1]:
        A = A.mH
    n, d = A.shape[-2:]
    margin = n * (n + d + 5) * 4 * _UNIT
    G = A @ A.mH
    proposed = float(torch.linalg.eigvalsh(G).amax())
    identity, growth = torch.eye(n, dtype=G.dtype, device=G.device), margin
    while True:
        s = proposed * (1 + growth)
        if not bool(torch.linalg.cholesky_ex(s * identity - G).info.any()):
            return rounded_up(power * math.sqrt(s) * (1 + margin))
        growth *= 2


def convolution_norm_bound(
    weight: Float[Tensor, "out in *kernel"],
    *,
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    size: Sequence[int] | None = None,
    circular: bool = False,
) -> float:
    r"""Return an upper bound of the norm of a convolution as an operator, rounding included.

    $$\|A\| \le \max_f \|H(f)\| \prod_i \cos(\pi Q_i / (2 M_i))^{-1}$$

    with H the Fourier transform of the kernel, which takes s inputs at once where the stride is s

    It holds for any zero padding, and for the transposed convolution from the outputs to the inputs.

    Args:
        weight: the kernel, `(out, in/groups, *kernel)`, finite.
        stride: one for each dimension.
        dilation: likewise.
        groups: the convolution's own groups.
        size: number of points of the input, likewise; None for all sizes together.
        circular: whether the input is a circle of this size, which the stride divides: then the bound is the norm, but
            for the margin of `matrix_norm_bound`.

    Returns:
        The bound.

    Examples:
        >>> ones = torch.ones(1, 1, 3)
        >>> of_any_size = convolution_norm_bound(ones, stride=[1], dilation=[1], groups=1)
        >>> of_a_circle = convolution_norm_bound(ones, stride=[1], dilation=[1], groups=1, size=[4], circular=True)
        >>> 3 <= of_a_circle < 3 + 1e-12, 3 <= of_any_size < 3.02
        (True, True)

    Source: H. Sedghi, V. Gupta and P. M. Long, "The Singular Values of Convolutional Layers" (2019) for stride 1.
    """
    strides, dilations, kernel = list(stride), list(dilation), weight.shape[2:]
    if size is None:
        # What is between the points that all taps and steps reach is another input of its own.
        common = [math.gcd(s, d) for s, d in zip(strides, dilations, strict=True)]
        strides = [s // c for s, c in zip(strides, common, strict=True)]
        dilations = [1 if s == 1 else d // c for s, d, c in zip(strides, dilations, common, strict=True)]
    last = [(k - 1) * d // s for k, d, s in zip(kernel, dilations, strides, strict=True)]
    if size is None:
        points = [max(1, 16 * q) for q in last]
    else:
        reach = [0 if circular else (k - 1) * d for k, d in zip(kernel, dilations, strict=True)]
        points = [-(-(n + r) // s) for n, r, s in zip(size, reach, strides, strict=True)]
    weight = in_float64(weight.detach())
    taps = list(product(*map(range, kernel)))
    found = max(matrix_norm_bound(H) for H in _at_frequencies(weight, taps, strides, dilations, groups, points))
    found += (110 + 4 * len(taps)) * _UNIT * math.sqrt(len(taps)) * float(weight.norm()) * (1 + 1e-9)
    for q, m in zip(last, points, strict=True):
        if size is None and q:
            found = found / math.cos(math.pi * q / (2 * m)) * (1 + 8 * _UNIT)
    return rounded_up(found)


def _at_frequencies(
    weight: Tensor,
    taps: list[tuple[int, ...]],
    strides: list[int],
    dilations: list[int],
    groups: int,
    points: list[int],
) -> Iterator[Tensor]:
    """Yield H(f) of some frequencies at a time, of shape (f * groups, out / groups, in / groups * strides)."""
    rows = weight.flatten(2).movedim(2, 0).unflatten(1, (groups, -1))  # taps, groups, out, in
    place = [[divmod(i * d, s) for i, d, s in zip(tap, dilations, strides, strict=True)] for tap in taps]
    channels: dict[tuple[int, ...], list[int]] = {}
    for index, parts in enumerate(place):
        channels.setdefault(tuple(r for _, r in parts), []).append(index)
    steps = torch.tensor([[q for q, _ in parts] for parts in place], device=weight.device)
    # Those of a real kernel at -f are conjugate to those at f.
    axes = [torch.arange(m // 2 + 1 if i == 0 else m, device=weight.device) for i, m in enumerate(points)]
    frequencies = torch.cartesian_prod(*axes).reshape(-1, len(points))
    circle = torch.tensor(points, device=weight.device)
    for part in frequencies.split(max(1, _ENTRIES // (rows[0].numel() * len(channels)))):
        turns = ((part.unsqueeze(1) * steps % circle) / circle.to(weight)).sum(-1)
        waves = torch.polar(torch.ones_like(turns), 2 * math.pi * turns)
        H = [torch.tensordot(waves[:, own], rows[own].to(waves), 1) for own in channels.values()]
        yield torch.cat(H, dim=-1).flatten(0, 1)
