"""What the project set out to reach in speed, beside what the suites measured: a page made of their JSON alone."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["TARGETS", "Target", "write_targets"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Target:
    """A bound on one figure of one suite, and what is in the way where it is missed."""

    what: str
    suite: str
    figure: Callable[[list[Row]], float | None]
    bound: float
    at_least: bool = False
    obstacle: str = ""

    def reached(self, figure: float) -> bool:
        """Return whether the figure keeps the bound."""
        return figure >= self.bound if self.at_least else figure <= self.bound


def _cell(column: str, *, inverse: bool = False, **where: object) -> Callable[[list[Row]], float | None]:
    """Return the figure in a column of the one row that has the given values; None where it was not measured."""

    def figure(rows: list[Row]) -> float | None:
        cells = [row[column] for row in rows if all(row[key] == value for key, value in where.items())]
        return next((1 / cell if inverse else cell for cell in cells), None)

    return figure


def _largest(column: str, *, start: int = 0, **where: object) -> Callable[[list[Row]], float]:
    """Return the largest figure in a column of the rows that have the given values, from the row `start` of them on."""
    return lambda rows: max(
        [row[column] for row in rows if all(row[key] == value for key, value in where.items())][start:]
    )


_FLOOR = "times the floor"
_AUTO = "orthonorm, auto"
_TOGETHER = "orthonorm, register_cached"
_PRECISION = (
    "Sigma and P V are formed in float64, at half the rate the floor is counted at, and make W right to its own type "
    "(errors near 1e-8 where 5e-5 was asked). These products, the others and the eigendecompositions, which run one "
    "after the other, are the column `products and roots alone` of the map's table; what is above it is copies, means "
    "and small operators. Tried without gain: Gram matrices in blocks of columns or symmetric halves, products in "
    "chunks of columns, eigendecompositions in threads, huge pages, other settings of malloc. A float32 Sigma was not "
    "taken, since its error at a condition of 1e3 is 2e-2."
)
_SMALL = (
    "The products and the eigendecompositions, in float64, of four small layers (column `products and roots alone` of "
    "the map's table) are of the order of the plain step itself, whatever the number of calls. Done: one root and one "
    "product for all layers of a shape, one sweep where the cache holds all, fewer small operators."
)
_ALONE = (
    "The float64 products and the eigendecomposition alone (column `products and roots alone`) take about as long as "
    "was asked of the whole; the loop decomposes in float32, and its error at a condition of 1e3 is in its row."
)
_STEP = (
    "At this batch the floor of 10 n N d operations for each layer is itself several percent of the plain step, and "
    "between other work neither V nor the gradient is in the cache. It falls with the batch: the map's time does not "
    "depend on it."
)
_ROOT = (
    "The eigendecomposition in float64 is most of the time of so small a map, and Cayley's map has none: it solves one "
    "linear system in float32, and its error is in its row."
)
_CALLS = (
    "A layer of its own length of rows needs at least sixteen calls (copies, means, products, both ways), and views "
    "between its shape and its groups; only layers of one shape share them. What made the map leaner lowered the count "
    "of layer by layer too, to which this one is compared."
)
_BYTES = (
    "Besides W, P and the eigenvectors are kept, n x N_G numbers of float64 each: more than W itself for 1 x 1 kernels "
    "of 64 inputs. In float32 they would cost second derivatives their accuracy."
)

_MLP, _VGG, _RESNET = "MLP 4 x 100, batch 256", "VGG, batch 32", "ResNet-50, batch 8 of 64 x 64"
_ONE, _GROUPS = "times ours, one group", "times ours, groups of 64"

TARGETS: Sequence[Target] = (
    Target("the map of 512 x 4608, groups of 64, over the floor", "transform",
           _cell(_FLOOR, shape="512 x 4608", path=_AUTO), 2.0, obstacle=_PRECISION),
    Target("the map of 640 x 5760, groups of 64, over the floor", "transform",
           _cell(_FLOOR, shape="640 x 5760", path=_AUTO), 2.0, obstacle=_PRECISION),
    Target("the loop of SVDs over the map, 64 x 576", "transform",
           _cell("times the loop of SVDs", inverse=True, shape="64 x 576", path=_AUTO), 2.5, True, obstacle=_ALONE),
    Target("the largest error of the default path at a condition of 1e3", "transform",
           _largest("error, condition 1e3", path=_AUTO), 5e-5),
    Target("a step of VGG, batch 32, over plain", "steps",
           _cell("times plain", network=_VGG, weights=_TOGETHER), 1.06, obstacle=_STEP),
    Target("a step of the MLP over plain", "steps",
           _cell("times plain", network=_MLP, weights=_TOGETHER), 2.0, obstacle=_SMALL),
    Target("a step of the MLP in groups of 50 over plain", "steps",
           _cell("times plain", network=f"{_MLP}, groups of 50", weights=_TOGETHER), 2.0, obstacle=_SMALL),
    Target("torch's Householder map over ours, 256 x 1152, one group (the same constraint)", "peers",
           _cell(_ONE, layer="torch orthogonal, householder"), 30.0, True, obstacle=_ROOT),
    Target("torch's Cayley map over ours, 256 x 1152, one group (the same constraint)", "peers",
           _cell(_ONE, layer="torch orthogonal, cayley"), 6.0, True, obstacle=_ROOT),
    Target("torch's Householder map over ours, 256 x 1152, groups of 64 (a weaker constraint)", "peers",
           _cell(_GROUPS, layer="torch orthogonal, householder"), 100.0, True, obstacle=_ROOT),
    Target("torch's Cayley map over ours, 256 x 1152, groups of 64 (a weaker constraint)", "peers",
           _cell(_GROUPS, layer="torch orthogonal, cayley"), 20.0, True, obstacle=_ROOT),
    Target("operator calls of ResNet-50's weights together, over layer by layer", "counts",
           _cell("times layer by layer", network=_RESNET, computed="together"), 0.2, obstacle=_CALLS),
    Target("bytes saved for the backward of ResNet-50's weights, over the weights", "counts",
           _cell("saved bytes / bytes of the weights", network=_RESNET, computed="together"), 1.2, obstacle=_BYTES),
    Target("time an entry over that of the smallest, n from 128 to 1280", "scaling",
           _largest("time an entry / the first", start=1, varied="n"), 1.0),
    Target("time an entry over that of the smallest, d from 576 to 5760", "scaling",
           _largest("time an entry / the first", start=1, varied="d"), 1.0),
)  # fmt: skip

_ON_A_GPU = (
    "VGG at batch 256 and WRN-28-10 at batch 128 at most 1.05 times plain, float32 and bf16, eager and compiled",
)


def write_targets(folder: Path) -> Path:
    """Write `targets.md` from the JSON of the suites in a folder, all of which must be there, and return its path."""
    results = {name: json.loads((folder / f"{name}.json").read_text()) for name in {t.suite for t in TARGETS}}
    machines = sorted({", ".join(f"{key} {value}" for key, value in r["machine"].items()) for r in results.values()})
    lines = ["# Targets, on a CPU", "", "Measured on: " + "; ".join(machines) + ".", ""]
    table = ["| what | asked | measured | verdict |", "| --- | --- | --- | --- |"]
    missed: dict[str, list[str]] = {}
    for target in TARGETS:
        figure, asked = target.figure(results[target.suite]["rows"]), ">=" if target.at_least else "<="
        if figure is None:
            table.append(f"| {target.what} | {asked} {target.bound:g} | not measured | - |")
            continue
        reached = target.reached(figure)
        page, verdict = f"[{figure:.3g}]({target.suite}.md)", "reached" if reached else "**missed**"
        table.append(f"| {target.what} | {asked} {target.bound:g} | {page} | {verdict} |")
        if not reached:
            missed.setdefault(target.obstacle, []).append(target.what)
    table += [f"| {what} | on CUDA | not measured | - |" for what in _ON_A_GPU]
    count = sum(len(whats) for whats in missed.values())
    lines += [f"Of {len(TARGETS)} targets {count} are missed.", "", *table]
    lines += ["", "## What is in the way", ""] if missed else []
    lines += [f"- **{'; '.join(whats)}.** {obstacle}" for obstacle, whats in missed.items()]
    path = folder / "targets.md"
    path.write_text("\n".join(lines) + "\n")
    return path
