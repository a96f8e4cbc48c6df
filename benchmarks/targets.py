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
    """A bound on one figure of one suite."""

    what: str
    suite: str
    figure: Callable[[list[Row]], float | None]
    bound: float
    at_least: bool = False

    def reached(self, figure: float) -> bool:
        """Return whether the figure keeps the bound."""
        return figure >= self.bound if self.at_least else figure <= self.bound


def _cell(column: str, *, inverse: bool = False, **where: object) -> Callable[[list[Row]], float | None]:
    """Return the figure in a column of the one row that has the given values; None where it was not measured."""

    def figure(rows: list[Row]) -> float | None:
        cells = [row[column] for row in rows if all(row[key] == value for key, value in where.items())]
        return next((1.0 / cell if inverse else 1.0 * cell for cell in cells), None)

    return figure


def _largest(column: str, *, start: int = 0, **where: object) -> Callable[[list[Row]], float | None]:
    """Return the largest figure in a column of the rows that have the given values, from the row `start` of them on."""
    return lambda rows: max(
        [row[column] for row in rows if all(row[key] == value for key, value in where.items())][start:], default=None
    )


_FLOOR, _EIGH, _FLOAT64 = "times the floor", "times batched eigh", "times float64 inside"
_AUTO = "orthonorm, auto"
_TOGETHER = "orthonorm, register_cached"
_MLP, _VGG, _RESNET = "MLP 4 x 100, batch 256", "VGG, batch 32", "ResNet-50, batch 8 of 64 x 64"
_ONE, _GROUPS = "times ours, one group", "times ours, groups of 64"
_CAYLEY = "torch orthogonal, cayley"

TARGETS: Sequence[Target] = (
    Target("condition number 2: over batched float32 eigh with autograd, the slowest size", "transform",
           _largest(_EIGH, condition=2.0, path=_AUTO), 1.0),
    Target("condition number 20: over batched float32 eigh with autograd, the slowest size", "transform",
           _largest(_EIGH, condition=20.0, path=_AUTO), 1.15),
    Target("condition number 2: over float64 inside, the slowest size", "transform",
           _largest(_FLOAT64, condition=2.0, path=_AUTO), 0.62),
    Target("condition number 20: over float64 inside, the slowest size", "transform",
           _largest(_FLOAT64, condition=20.0, path=_AUTO), 0.9),
    Target("512 x 4608, groups of 64, over the floor", "transform",
           _cell(_FLOOR, shape="512 x 4608", condition=2.0, path=_AUTO), 2.0),
    Target("640 x 5760, groups of 64, over the floor", "transform",
           _cell(_FLOOR, shape="640 x 5760", condition=2.0, path=_AUTO), 2.0),
    Target("the largest error of the default path at a condition number of 1e3", "transform",
           _largest("error, condition 1e3", path=_AUTO), 1e-5),
    Target("a step of the MLP over plain", "steps", _cell("times plain", network=_MLP, weights=_TOGETHER), 2.0),
    Target("a step of the MLP in groups of 50 over plain", "steps",
           _cell("times plain", network=f"{_MLP}, groups of 50", weights=_TOGETHER), 2.0),
    Target("a step of VGG, batch 32, over plain", "steps", _cell("times plain", network=_VGG, weights=_TOGETHER), 1.06),
    Target("a step of ResNet-50, batch 32 of 224 x 224, over plain", "steps",
           _cell("times plain", network="ResNet-50, batch 32 of 224 x 224", weights=_TOGETHER), 1.08),
    Target("seconds of the demo over plain", "demo", _largest("times plain"), 2.5),
    Target("64 x 64, one group, over torch's Cayley map", "peers",
           _cell(_ONE, inverse=True, shape="64 x 64", layer=_CAYLEY), 1.3),
    Target("512 x 512, one group, over torch's Cayley map", "peers",
           _cell(_ONE, inverse=True, shape="512 x 512", layer=_CAYLEY), 2.2),
    Target("torch's Householder map over ours, 256 x 1152, one group (the same constraint)", "peers",
           _cell(_ONE, shape="256 x 1152", layer="torch orthogonal, householder"), 30.0, True),
    Target("torch's Cayley map over ours, 256 x 1152, one group (the same constraint)", "peers",
           _cell(_ONE, shape="256 x 1152", layer=_CAYLEY), 6.0, True),
    Target("torch's Cayley map over ours, 256 x 1152, groups of 64 (a weaker constraint)", "peers",
           _cell(_GROUPS, shape="256 x 1152", layer=_CAYLEY), 20.0, True),
    Target("operator calls of the MLP's weights together, both ways", "counts",
           _cell("operator calls", network=_MLP, computed="together"), 110.0),
    Target("operator calls of ResNet-50's weights together, over layer by layer", "counts",
           _cell("times layer by layer", network=_RESNET, computed="together"), 0.2),
    Target("bytes saved for the backward of ResNet-50's weights, over the weights", "counts",
           _cell("saved bytes / bytes of the weights", network=_RESNET, computed="together"), 1.2),
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
    missed = 0
    for target in TARGETS:
        figure, asked = target.figure(results[target.suite]["rows"]), ">=" if target.at_least else "<="
        if figure is None:
            table.append(f"| {target.what} | {asked} {target.bound:g} | not measured | - |")
            continue
        reached = target.reached(figure)
        page, verdict = f"[{figure:.3g}]({target.suite}.md)", "reached" if reached else "**missed**"
        table.append(f"| {target.what} | {asked} {target.bound:g} | {page} | {verdict} |")
        missed += not reached
    table += [f"| {what} | on CUDA | not measured | - |" for what in _ON_A_GPU]
    lines += [f"Of {len(TARGETS)} targets {missed} are missed.", "", *table]
    path = folder / "targets.md"
    path.write_text("\n".join(lines) + "\n")
    return path
