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
    alone: Callable[[list[Row]], float | None] | None = None
    """What the figure would be if the products and the roots were all that is computed."""

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


def _slowest_alone(column: str, *, condition: float) -> Callable[[list[Row]], float | None]:
    """Return what products and roots alone give in a column of ratios, at the size where ours is the largest."""

    def figure(rows: list[Row]) -> float | None:
        ours = [row for row in rows if row["path"] == _AUTO and row["condition"] == condition]
        row = max(ours, key=lambda row: row[column])
        return row[column] * row[_ALONE] / row[_FLOOR]

    return figure


def _alone_over_cayley(shape: str) -> Callable[[list[Row]], float | None]:
    def figure(rows: list[Row]) -> float | None:
        own = [row for row in rows if row["shape"] == shape]
        alone = next(row[_ALONE] for row in own if row[_ALONE] is not None)
        return alone / next(row["milliseconds"] for row in own if row["layer"] == _CAYLEY)

    return figure


def _step(network: str) -> Callable[[list[Row]], float | None]:
    return _cell("times plain", network=network, weights=_TOGETHER)


def _step_alone(network: str) -> Callable[[list[Row]], float | None]:
    return _cell("with products and roots alone", network=network, weights=_TOGETHER)


_ALONE = "products and roots alone"
_FLOOR, _EIGH, _FLOAT64 = "times the floor", "times batched eigh", "times float64 inside"
_AUTO = "orthonorm, auto"
_TOGETHER = "orthonorm, register_cached"
_MLP, _VGG, _RESNET = "MLP 4 x 100, batch 256", "VGG, batch 32", "ResNet-50, batch 8 of 64 x 64"
_RESNET_224 = "ResNet-50, batch 32 of 224 x 224"
_ONE, _GROUPS = "times ours, one group", "times ours, groups of 64"
_CAYLEY = "torch orthogonal, cayley"

TARGETS: Sequence[Target] = (
    Target("condition number 2: over batched float32 eigh with autograd, the slowest size", "transform",
           _largest(_EIGH, condition=2.0, path=_AUTO), 1.0, alone=_slowest_alone(_EIGH, condition=2.0)),
    Target("condition number 20: over batched float32 eigh with autograd, the slowest size", "transform",
           _largest(_EIGH, condition=20.0, path=_AUTO), 1.15, alone=_slowest_alone(_EIGH, condition=20.0)),
    Target("condition number 2: over float64 inside, the slowest size", "transform",
           _largest(_FLOAT64, condition=2.0, path=_AUTO), 0.62, alone=_slowest_alone(_FLOAT64, condition=2.0)),
    Target("condition number 20: over float64 inside, the slowest size", "transform",
           _largest(_FLOAT64, condition=20.0, path=_AUTO), 0.9, alone=_slowest_alone(_FLOAT64, condition=20.0)),
    Target("512 x 4608, groups of 64, over the floor", "transform",
           _cell(_FLOOR, shape="512 x 4608", condition=2.0, path=_AUTO), 2.0,
           alone=_cell(_ALONE, shape="512 x 4608", condition=2.0, path=_AUTO)),
    Target("640 x 5760, groups of 64, over the floor", "transform",
           _cell(_FLOOR, shape="640 x 5760", condition=2.0, path=_AUTO), 2.0,
           alone=_cell(_ALONE, shape="640 x 5760", condition=2.0, path=_AUTO)),
    Target("the largest error of the default path at a condition number of 1e3", "transform",
           _largest("error, condition 1e3", path=_AUTO), 1e-5),
    Target("a step of the MLP over plain", "steps", _step(_MLP), 2.0, alone=_step_alone(_MLP)),
    Target("a step of the MLP in groups of 50 over plain", "steps",
           _step(f"{_MLP}, groups of 50"), 2.0, alone=_step_alone(f"{_MLP}, groups of 50")),
    Target("a step of VGG, batch 32, over plain", "steps", _step(_VGG), 1.06, alone=_step_alone(_VGG)),
    Target("a step of ResNet-50, batch 32 of 224 x 224, over plain", "steps",
           _step(_RESNET_224), 1.08, alone=_step_alone(_RESNET_224)),
    Target("seconds of the demo over plain", "demo", _largest("times plain"), 2.5),
    Target("64 x 64, one group, over torch's Cayley map", "peers",
           _cell(_ONE, inverse=True, shape="64 x 64", layer=_CAYLEY), 1.3,
           alone=_alone_over_cayley("64 x 64")),
    Target("512 x 512, one group, over torch's Cayley map", "peers",
           _cell(_ONE, inverse=True, shape="512 x 512", layer=_CAYLEY), 2.2,
           alone=_alone_over_cayley("512 x 512")),
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


_WHAT_EXPLAINS_A_MISS = (
    "The last column is what the figure would be if nothing were computed but five matrix products of each weight's "
    "size and the eigendecompositions of the small matrices. Where it is above what was asked, no way by "
    "eigendecompositions reaches the target on this machine. Where it is below, the rest is the other small products "
    "and the [operator calls](counts.md).",
    "",
    "## What was tried",
    "",
    "- **Matrix products instead of eigendecompositions**, which is what accelerators get: the rows `newton` of [the "
    "transformation](transform.md) and of [the roots](roots.md).",
    "- **Half of the eigendecompositions in each of two threads**: [the roots](roots.md), where torch decomposes the "
    "matrices of a batch one after the other. Two cores do not halve the time, since the idle threads of the matrix "
    "product before keep them busy, and small batches gain nothing. So it was not taken.",
    "- **One thread**: [the transformation](one-thread/transform.md).",
    "- **One node for all weights**: [the operator calls](counts.md). ResNet-50 has rows of many lengths, and each "
    "length takes products of its own, so that its calls fall less than those of the MLP.",
    "",
    "The demo's network is an MLP of the same width as the one of the steps, on one thread. Its ratio has the same "
    "cause.",
)


def write_targets(folder: Path) -> Path:
    """Write `targets.md` from the JSON of the suites in a folder, all of which must be there, and return its path."""
    results = {name: json.loads((folder / f"{name}.json").read_text()) for name in {t.suite for t in TARGETS}}
    machines = sorted({", ".join(f"{key} {value}" for key, value in r["machine"].items()) for r in results.values()})
    lines = ["# Targets, on a CPU", "", "Measured on: " + "; ".join(machines) + ".", ""]
    table = [f"| what | asked | measured | verdict | {_ALONE} |", "| --- | --- | --- | --- | --- |"]
    missed = 0
    for target in TARGETS:
        rows = results[target.suite]["rows"]
        figure, asked = target.figure(rows), ">=" if target.at_least else "<="
        if figure is None:
            table.append(f"| {target.what} | {asked} {target.bound:g} | not measured | - | - |")
            continue
        alone = None if target.alone is None else target.alone(rows)
        reached = target.reached(figure)
        page, verdict = f"[{figure:.3g}]({target.suite}.md)", "reached" if reached else "**missed**"
        last = "-" if alone is None else f"{alone:.3g}"
        table.append(f"| {target.what} | {asked} {target.bound:g} | {page} | {verdict} | {last} |")
        missed += not reached
    table += [f"| {what} | on CUDA | not measured | - | - |" for what in _ON_A_GPU]
    lines += [f"Of {len(TARGETS)} targets {missed} are missed.", "", *table, "", *_WHAT_EXPLAINS_A_MISS]
    path = folder / "targets.md"
    path.write_text("\n".join(lines) + "\n")
    return path
