"""The figure of all ways: test errors with their intervals."""

from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure

from orthonorm_paper.reports.claims.rule import interval

from .summary import Summary
from .ways import WAYS

__all__ = ["draw"]

# Colours that the colour-blind can tell apart (Okabe and Ito), on white in both of the site's themes.
_FREE, _PARAMETRIZED, _MANIFOLD = "#555555", "#0072b2", "#d55e00"


def draw(found: Mapping[tuple[str, str], Summary], titles: Mapping[str, str], path: Path) -> None:
    """Draw the test error of every way that ran, a panel for each problem on which one did."""
    panels = [problem for problem in titles if any(problem == key[0] for key in found)]
    ways = [[way for way in WAYS if (problem, way) in found] for problem in panels]
    heights = [len(shown) + 2 for shown in ways]
    figure = Figure(figsize=(8, 0.3 * sum(heights) + 1), layout="constrained", facecolor="white")
    axes = figure.subplots(len(panels), squeeze=False, height_ratios=heights)[:, 0]
    for axis, problem, shown in zip(axes, panels, ways, strict=True):
        for height, way in enumerate(reversed(shown)):
            one = found[problem, way]
            low, high = interval(list(one.test_errors.values()))
            bars = [[one.test_error - low], [high - one.test_error]]
            axis.errorbar(one.test_error, height, xerr=bars, fmt="o", color=_colour(way), capsize=3)
        axis.set_yticks(range(len(shown)), list(reversed(shown)))
        axis.set(title=titles[problem], xlabel="test error, %")
        axis.grid(axis="x", alpha=0.3)
    handles = [axes[0].plot([], [], "o", color=colour, label=label)[0] for label, colour in _FAMILIES.items()]
    figure.legend(handles=handles, loc="outside upper center", ncols=3, frameon=False)
    figure.savefig(path, dpi=130, metadata={"Software": None})


_FAMILIES = {
    "free or drawn to orthogonality": _FREE,
    "re-parametrization": _PARAMETRIZED,
    "optimizer on or near the manifold": _MANIFOLD,
}


def _colour(way: str) -> str:
    if way.startswith(("plain", "soft", "torch Muon")):
        return _FREE
    return _PARAMETRIZED if way.startswith(("OLM", "orthonorm", "torch", "geotorch")) else _MANIFOLD
