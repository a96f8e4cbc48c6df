"""The checks pass what is right and fail what is wrong."""

import pytest
import torch

from orthonorm.functional import check_metric, check_retraction, check_tangent, haar, project_tangent, retract_qr
from orthonorm.functional.stiefel._manifold import METRICS
from orthonorm.functional.stiefel._retractions import LEGAL_PAIRS, RETRACTIONS

W = haar(4, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
X = project_tangent(W, torch.randn(4, 7, generator=torch.Generator().manual_seed(1)).double())
SHAPES = [(1, 5), (4, 7), (4, 4)]


def cubic(V: torch.Tensor) -> torch.Tensor:
    """A function without symmetry."""
    return (V**3 + torch.linspace(0, 1, V.numel(), dtype=V.dtype).view_as(V) * V).sum()


@pytest.mark.parametrize(("n", "d"), SHAPES)
@pytest.mark.parametrize("pair", LEGAL_PAIRS, ids=str)
def test_every_legal_pair(pair, n, d):
    metric, name = pair
    generator = torch.Generator().manual_seed(n)
    point = haar(n, d, generator=generator, dtype=torch.float64)
    report = check_retraction(RETRACTIONS[name], point, generator=generator)
    assert report.ok, str(report)
    assert abs(report.slope - 2) < 0.05
    if metric is not None:
        report = check_metric(cubic, point, metric=metric, retract=RETRACTIONS[name], generator=generator)
        assert report.ok, str(report)


@pytest.mark.parametrize("used", METRICS)
@pytest.mark.parametrize("asked", METRICS)
def test_a_gradient_of_the_other_metric_is_found(asked, used):
    report = check_metric(cubic, W, X, metric=asked, gradient=METRICS[used].gradient)
    assert report.ok == (asked == used)
    assert (report.slope < 1.2) == (asked != used)


def test_a_gradient_that_is_not_tangent_is_found():
    report = check_metric(cubic, W, X, gradient=lambda _, G: G)
    assert not report.ok
    assert report.residual > 0.1


def test_tangent():
    report = check_tangent(W, X)
    assert report.ok
    assert abs(report.slope - 2) < 0.01
    assert not check_tangent(W, X + 1e-6 * W).ok
    assert check_tangent(W, W).slope < 1.1


@pytest.mark.parametrize(
    "wrong",
    [
        lambda W, Z: W + Z,
        lambda W, Z: retract_qr(W, 0.5 * Z),
        lambda W, Z: torch.linalg.qr((W + Z).mT)[0].mT,
        lambda W, Z: retract_qr(W, Z) * (1 + 1e-6),
        lambda W, _: torch.full_like(W, torch.nan),
    ],
    ids=["stays off", "half as far", "no sign convention", "scaled", "NaN"],
)
def test_what_is_no_retraction_is_found(wrong):
    assert not check_retraction(wrong, W, X).ok


def test_a_report_reads_as_a_line():
    assert str(check_tangent(W, X)).startswith("tangent: ok (slope 2.00, residual ")
