"""Slope checks: is this a tangent vector, a retraction, a Riemannian gradient?

Each check measures an error at step lengths `t` from 1e-2 to 3e-5 along a unit direction and takes
the median slope of `log error` over `log t`. What is right to first order leaves an error of second
order: slope 2. A mistake leaves slope 1. An exact identity is checked beside it. All in float64: in
float32 rounding would be the slope.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from orthonorm.functional._option_types import MetricName

from ._manifold import check_rows, inner, project_tangent, riemannian_gradient
from ._retractions import retract_qr

__all__ = ["SlopeReport", "check_metric", "check_retraction", "check_tangent"]

_TOLERANCE = 0.1
_ROUNDING = 1e-9


@dataclass(frozen=True)
class SlopeReport:
    """What a check measured; `ok` says whether it passed.

    Attributes:
        check: name of the check.
        slope: order of the errors in `t`; 2 is right, infinity where all errors are rounding.
        residual: relative violation of the exact identity named by the check.
        ok: whether the check passed.
        steps: the steps `t` that were tried, the largest first.
        errors: the error at each step.
    """

    check: str
    slope: float
    residual: float
    ok: bool
    steps: tuple[float, ...]
    errors: tuple[float, ...]

    def __str__(self) -> str:
        verdict = "ok" if self.ok else "FAILED"
        return f"{self.check}: {verdict} (slope {self.slope:.2f}, residual {self.residual:.1e})"


def check_tangent(W: Float[Tensor, "n d"], X: Float[Tensor, "n d"]) -> SlopeReport:
    """Return whether `X` is tangent at `W`: `W + t X` leaves the manifold in second order.

    slope of `|(W + t X)(W + t X)^T - I|`; residual `|X W^T + W X^T| / |X|`

    Args:
        W: on the manifold, `n <= d`, float64.
        X: not zero, float64.

    Raises:
        TypeError, ValueError: not float64; wrong shapes; `W` off the manifold; `X` zero.

    Examples:
        >>> from orthonorm.functional.stiefel import haar, project_tangent
        >>> W = haar(3, 7, dtype=torch.float64)
        >>> check_tangent(W, project_tangent(W, torch.ones(3, 7, dtype=torch.float64))).ok
        True
        >>> check_tangent(W, W).ok
        False
    """
    _check_point(W, X)
    X = _unit(X)
    eye = torch.eye(len(W), dtype=W.dtype, device=W.device)

    def error(t: float) -> float:
        V = W + t * X
        return float(torch.linalg.matrix_norm(V @ V.mT - eye))

    residual = torch.linalg.matrix_norm(X @ W.mT + W @ X.mT).item()
    return _report("tangent", error, residual)


def check_retraction(
    retract: Callable[[Tensor, Tensor], Tensor],
    W: Float[Tensor, "n d"],
    X: Float[Tensor, "n d"] | None = None,
    *,
    generator: torch.Generator | None = None,
) -> SlopeReport:
    """Return whether `retract` is a first-order retraction onto the manifold.

    slope of `|R_W(t X) - (W + t X)|`; residual: largest `|R R^T - I|` on the way

    Args:
        retract: takes `W` and a tangent vector.
        W: on the manifold, `n <= d`, float64.
        X: tangent at `W`, or `None` for a random one.
        generator: source of the random direction.

    Raises:
        TypeError, ValueError: not float64; wrong shapes; `W` off the manifold; `X` zero.

    Examples:
        >>> from orthonorm.functional.stiefel._retractions import retract_polar
        >>> from orthonorm.functional.stiefel import haar
        >>> print(check_retraction(retract_polar, haar(3, 7, dtype=torch.float64)).ok)
        True
        >>> print(check_retraction(lambda W, Z: W + Z, haar(3, 7, dtype=torch.float64)).ok)
        False

    Source: Absil, Mahony, Sepulchre, Optimization Algorithms on Matrix Manifolds, 2008, definition 4.1.1.
    """
    _check_point(W, X)
    X = _unit(_random_tangent(W, generator) if X is None else X)
    eye = torch.eye(len(W), dtype=W.dtype, device=W.device)
    off: list[float] = []

    def error(t: float) -> float:
        R = retract(W, t * X)
        off.append(torch.linalg.matrix_norm(R @ R.mT - eye).item())
        return float(torch.linalg.matrix_norm(R - (W + t * X)))

    # The errors are measured first, so that `off` is complete.
    measured = [(t, error(t)) for t in _steps()]
    return _judge("retraction", measured, max(off))


def check_metric(
    f: Callable[[Tensor], Tensor],
    W: Float[Tensor, "n d"],
    X: Float[Tensor, "n d"] | None = None,
    *,
    metric: MetricName = "euclidean",
    gradient: Callable[[Tensor, Tensor], Tensor] | None = None,
    retract: Callable[[Tensor, Tensor], Tensor] = retract_qr,
    generator: torch.Generator | None = None,
) -> SlopeReport:
    """Return whether a gradient represents the differential: `<grad, X>_metric = df(X)`.

    slope of `|f(R_W(t X)) - f(W) - t <grad, X>|`; residual
    `|<grad, X> - df(X)| / |G|`, or how far `grad` is from tangent where that is more

    Args:
        f: a smooth function of one matrix, a scalar that autograd can differentiate.
        W: on the manifold, `n <= d`, float64.
        X: tangent at `W`, or `None` for a random one.
        metric: `"euclidean"` or `"canonical"`.
        gradient: from `W` and the ordinary gradient `G` to `grad`; the library's by default.
        retract: a retraction, for the curve `R_W(t X)`.
        generator: source of the random direction.

    Raises:
        TypeError, ValueError: not float64; wrong shapes; `W` off the manifold; `X` zero; unknown
            metric.

    Examples:
        >>> from orthonorm.functional.stiefel import haar
        >>> def f(W):
        ...     return (W**3).sum()
        >>> check_metric(f, haar(3, 7, dtype=torch.float64)).ok
        True
    """
    _check_point(W, X)
    X = _unit(_random_tangent(W, generator) if X is None else X)
    leaf = W.detach().clone().requires_grad_()
    with torch.enable_grad():
        value = f(leaf)
    (G,) = torch.autograd.grad(value, leaf)
    start = value.item()
    grad = riemannian_gradient(W, G, metric) if gradient is None else gradient(W, G)
    represented = inner(W, grad, X, metric).item()
    size = torch.linalg.matrix_norm(G).item()
    identity = abs(represented - (G * X).sum().item())
    tangency = torch.linalg.matrix_norm(grad @ W.mT + W @ grad.mT).item()

    def error(t: float) -> float:
        return abs(f(retract(W, t * X)).item() - start - t * represented)

    with torch.no_grad():
        return _report(f"{metric} gradient", error, max(identity, tangency) / max(size, 1e-300))


def _check_point(W: Tensor, X: Tensor | None) -> None:
    check_rows(W, *([] if X is None else [X]))
    if W.dtype != torch.float64:
        raise TypeError(f"W must be float64 for a slope check; got {W.dtype}. Pass W.double().")
    if W.ndim != 2:
        raise ValueError(f"W must be one matrix (n, d); got the shape {tuple(W.shape)}. Check one matrix at a time.")
    off = (W @ W.mT - torch.eye(len(W), dtype=W.dtype, device=W.device)).abs().max().item()
    if not off <= _ROUNDING:
        raise ValueError(f"W must have orthonormal rows; got |W W^T - I| = {off:.1e}. Pass project(W).")
    if X is not None and not torch.linalg.matrix_norm(X).item() > 0:
        raise ValueError(
            "the direction X must be finite and not zero; got one of norm "
            f"{torch.linalg.matrix_norm(X).item():g}. Pass a tangent vector at W."
        )


def _unit(X: Tensor) -> Tensor:
    return X / torch.linalg.matrix_norm(X)


def _random_tangent(W: Tensor, generator: torch.Generator | None) -> Tensor:
    noise = torch.randn(W.shape, generator=generator, dtype=W.dtype, device=W.device)
    return project_tangent(W, noise)


def _steps() -> list[float]:
    return [10 ** (-2 - 0.25 * i) for i in range(11)]


def _report(check: str, error: Callable[[float], float], residual: float) -> SlopeReport:
    return _judge(check, [(t, error(t)) for t in _steps()], residual)


def _judge(check: str, measured: list[tuple[float, float]], residual: float) -> SlopeReport:
    steps, errors = zip(*measured, strict=True)
    seen = [(t, e) for t, e in measured if e > 1e-13]
    if len(seen) < 4:
        slope = float("inf") if all(e == e for e in errors) else float("nan")
    else:
        # The median, since a Taylor error that changes its sign on the way has one steep place.
        x, y = torch.tensor(seen, dtype=torch.float64).log().diff(dim=0).unbind(1)
        slope = float((y / x).median())
    ok = slope >= 2 - _TOLERANCE and residual <= _ROUNDING
    return SlopeReport(check, slope, residual, ok, steps, errors)
