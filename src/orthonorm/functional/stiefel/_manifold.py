"""The Stiefel manifold of matrices with orthonormal rows: metrics, projections, samples.

Every function takes `(..., n, d)` with `n <= d` and means `W W^T = I`. A tall matrix goes through
its transpose (`W.mT`), here and everywhere. The tangent space at `W` is `{X : X W^T + W X^T = 0}`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from orthonorm.functional._option_types import MetricName
from orthonorm.functional._precision import working_dtype

__all__ = [
    "METRICS",
    "Metric",
    "add_product",
    "check_rows",
    "haar",
    "inner",
    "project",
    "project_tangent",
    "riemannian_gradient",
]


def check_rows(W: Tensor, *others: Tensor) -> None:
    """Raise unless `W` can hold orthonormal rows and the others have its shape and dtype."""
    if W.dtype not in (torch.float32, torch.float64):
        raise TypeError(
            f"W must be float32 or float64; got {W.dtype}. Cast it with .float(); complex matrices are not supported."
        )
    if W.ndim < 2 or W.shape[-2] > W.shape[-1]:
        raise ValueError(
            f"orthonormal rows need a shape (..., n, d) with n <= d; got {tuple(W.shape)}. Pass the transpose W.mT for "
            "orthonormal columns."
        )
    for other in others:
        if other.shape != W.shape or other.dtype != W.dtype:
            raise ValueError(
                f"every argument must have the shape and dtype of W, {tuple(W.shape)} {W.dtype}; got "
                f"{tuple(other.shape)} {other.dtype}. Convert it with .to(W.dtype), or reshape it."
            )


def project_tangent(W: Float[Tensor, "*batch n d"], X: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
    """Return the orthogonal projection onto the tangent space, which is idempotent.

    `X - 1/2 (X W^T + W X^T) W`

    Args:
        W: on the manifold, float32 or float64.
        X: any matrix of the same shape.

    Raises:
        TypeError, ValueError: wrong dtype; `n > d`; shapes that differ.

    Examples:
        >>> W = haar(2, 5, generator=torch.Generator().manual_seed(0))
        >>> X = project_tangent(W, torch.ones(2, 5))
        >>> bool((X @ W.mT + W @ X.mT).abs().max() < 1e-5)
        True

    Source: Absil, Mahony, Sepulchre, Optimization Algorithms on Matrix Manifolds, 2008, example 3.6.2.
    """
    check_rows(W, X)
    C = X @ W.mT
    return add_product(X, C + C.mT, W, -0.5)


def add_product(
    X: Float[Tensor, "*batch n d"],
    A: Float[Tensor, "*batch n n"],
    W: Float[Tensor, "*batch n d"],
    alpha: float,
) -> Float[Tensor, "*batch n d"]:
    """Return `X + alpha A W`, in one pass where there is one batch dimension."""
    return torch.baddbmm(X, A, W, alpha=alpha) if W.ndim == 3 else torch.add(X, A @ W, alpha=alpha)


def _canonical_gradient(W: Tensor, G: Tensor) -> Tensor:
    return add_product(G, W @ G.mT, W, -1.0)


def _euclidean_inner(_: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    return (X * Y).sum((-2, -1))


def _canonical_inner(W: Tensor, X: Tensor, Y: Tensor) -> Tensor:
    return (X * Y).sum((-2, -1)) - 0.5 * ((X @ W.mT) * (Y @ W.mT)).sum((-2, -1))


@dataclass(frozen=True)
class Metric:
    """An inner product on tangent spaces and the gradient that represents `df` under it."""

    gradient: Callable[[Tensor, Tensor], Tensor]
    inner: Callable[[Tensor, Tensor, Tensor], Tensor]


# Note [The two metrics]
# In row convention a tangent vector is X = A W + N with A = X W^T skew and N W^T = 0.
# Euclidean: <X, Y> = tr X Y^T counts both parts once. Canonical: tr X (I - 1/2 W^T W) Y^T counts
# the rotation A half. A gradient g has <g, Y> = tr G Y^T for every tangent Y. Write G = C W + N with
# C = G W^T; only the skew part of C meets a tangent Y, so the Euclidean gradient is
# 1/2 (C - C^T) W + N = G - 1/2 (C + C^T) W, and the canonical one must double the rotation:
# (C - C^T) W + N = G - C^T W. The paper's appendix has the two labels the other way round.
METRICS = {
    "euclidean": Metric(project_tangent, _euclidean_inner),
    "canonical": Metric(_canonical_gradient, _canonical_inner),
}


def _metric(name: str) -> Metric:
    if name not in METRICS:
        raise ValueError(f"metric must be one of {sorted(METRICS)}; got {name!r}.")
    return METRICS[name]


def riemannian_gradient(
    W: Float[Tensor, "*batch n d"], G: Float[Tensor, "*batch n d"], metric: MetricName = "euclidean"
) -> Float[Tensor, "*batch n d"]:
    """Return the tangent vector that represents the differential `X -> tr G X^T` under a metric.

    euclidean: `G - 1/2 (G W^T + W G^T) W`; canonical: `G - W G^T W`

    Args:
        W: on the manifold, float32 or float64.
        G: the ordinary gradient at `W`, same shape.
        metric: `"euclidean"` or `"canonical"`.

    Raises:
        TypeError, ValueError: wrong dtype; `n > d`; shapes that differ; unknown metric.

    Examples:
        >>> W = haar(2, 5, generator=torch.Generator().manual_seed(0))
        >>> g = riemannian_gradient(W, torch.ones(2, 5), "canonical")
        >>> X = project_tangent(W, torch.randn(2, 5))
        >>> bool((inner(W, g, X, "canonical") - X.sum()).abs() < 1e-5)
        True

    Source: The paper's appendix on Riemannian optimization, transposed and with its two labels exchanged: its
    "Euclidean" formula represents the differential under the canonical metric; Mathematics (8).
    """
    check_rows(W, G)
    return _metric(metric).gradient(W, G)


def inner(
    W: Float[Tensor, "*batch n d"],
    X: Float[Tensor, "*batch n d"],
    Y: Float[Tensor, "*batch n d"],
    metric: MetricName = "euclidean",
) -> Float[Tensor, "*batch"]:
    """Return the inner product of two tangent vectors at `W`, one number a matrix.

    euclidean: `tr X Y^T`; canonical: `tr X (I - 1/2 W^T W) Y^T`

    Args:
        W: on the manifold, float32 or float64.
        X: tangent at `W`, same shape.
        Y: tangent at `W`, same shape.
        metric: `"euclidean"` or `"canonical"`.

    Raises:
        TypeError, ValueError: wrong dtype; `n > d`; shapes that differ; unknown metric.

    Examples:
        >>> W = torch.eye(2, 3)
        >>> X = torch.tensor([[0.0, 2.0, 0.0], [-2.0, 0.0, 0.0]])
        >>> inner(W, X, X).item(), inner(W, X, X, "canonical").item()
        (8.0, 4.0)

    Source: Edelman, Arias, Smith, The geometry of algorithms with orthogonality constraints, 1998, section 2.4.
    """
    check_rows(W, X, Y)
    return _metric(metric).inner(W, X, Y)


def project(V: Float[Tensor, "*batch n d"]) -> Float[Tensor, "*batch n d"]:
    """Return the nearest matrix with orthonormal rows, `(V V^T)^{-1/2} V`; the function is idempotent.

    It is computed in float64 from the singular value decomposition `V = A S B^T` as `A B^T`. So a matrix without full
    rank gets a completion too (which one is the decomposition's choice).

    Args:
        V: any finite matrix with `n <= d`, float32 or float64.

    Raises:
        TypeError, ValueError: wrong dtype; `n > d`; an entry that is not finite.

    Examples:
        >>> project(torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.1, 0.0]]))
        tensor([[1., 0., 0.],
                [0., 1., 0.]])
    """
    check_rows(V)
    if not bool(torch.isfinite(V).all()):
        raise ValueError(
            "V must be finite to have a nearest orthonormal matrix; got NaN or infinity. Initialize V first."
        )
    A, _, Bt = torch.linalg.svd(V.to(working_dtype(V)), full_matrices=False)
    return (A @ Bt).to(V.dtype)


def haar(
    n: int,
    d: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | None = None,
) -> Float[Tensor, "n d"]:
    """Return a matrix with orthonormal rows, drawn from the uniform (Haar) distribution.

    It is the orthonormal matrix nearest to a standard Gaussian `n x d`. The Gaussian distribution and the projection
    are invariant under rotations from either side, and the uniform distribution is the only one that is.

    Args:
        n: rows, at most `d`.
        d: length of a row.
        generator: source of the draw, on `device`.
        dtype: float32 or float64; both give the same matrix up to rounding.
        device: where the sample lives.

    Raises:
        TypeError, ValueError: wrong dtype; `n > d`.

    Examples:
        >>> W = haar(3, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> bool((W @ W.mT - torch.eye(3)).abs().max() < 1e-14)
        True

    Source: Chikuse, Statistics on Special Manifolds, 2003, theorem 2.2.1.
    """
    check_rows(torch.empty(n, d, dtype=dtype, device="meta"))
    wide = working_dtype(torch.empty(0, device=device))
    return project(torch.randn(n, d, generator=generator, dtype=wide, device=device)).to(dtype)
