"""The page about all ways, its figure and its packed records, made from the records of the runs and the times."""

import gzip
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orthonorm_paper.reports.claims.rule import FAILS, HOLDS, Verdict, interval, lower

from .figure import draw
from .guidance import OURS, guidance
from .problems import PROBLEMS
from .summary import TARGETS, Records, Summary, summaries
from .ways import WAYS

__all__ = ["page_text", "publish", "read_records", "write_page"]


def read_records(folder: Path) -> list[dict[str, Any]]:
    """The records of a folder of runs."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*/*.json"))]


def publish(runs: Path, out: Path) -> Path:
    """Add the records of a folder of runs to those packed beside the page, and write it; returns the page's path."""
    packed = out / "ways.jsonl.gz"
    known = _unpack(packed) if packed.exists() else []
    found = {_run_of(record): record for record in (*known, *map(_rounded, read_records(runs)))}
    text = "".join(json.dumps(found[run]) + "\n" for run in sorted(found))
    # Without name and time in it the same records give the same bytes.
    packed.write_bytes(gzip.compress(text.encode(), mtime=0))
    return write_page(out)


def _unpack(packed: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(packed.read_bytes()).splitlines()]


def _run_of(record: Mapping[str, Any]) -> tuple[Any, ...]:
    return record["problem"], record["way"], record["lr"], record["seed"]


def write_page(out: Path) -> Path:
    """Write `ways.md` and `ways.png` from `ways.jsonl.gz` and `ways.json` beside them."""
    records = _unpack(out / "ways.jsonl.gz")
    times = json.loads((out / "ways.json").read_text())
    found = summaries(records)
    page = out / "ways.md"
    page.write_text(page_text(found, records, times))
    draw(found, {problem: about[0] for problem, about in _ABOUT.items()}, out / "ways.png")
    return page


def page_text(found: Mapping[tuple[str, str], Summary], records: Records, times: Mapping[str, Any]) -> str:
    """The page as Markdown."""
    measured = {(row["problem"], row["way"]): row for row in times["rows"]}
    machine = ", ".join(f"{key} {value}" for key, value in times["machine"].items())
    busy = _BUSY if times["load"] > _IDLE else ""
    lines = [_HEAD, f"Times: {machine}; medians of {times['rounds']} interleaved rounds.{busy}", ""]
    for problem, about in _ABOUT.items():
        own = found.get((problem, OURS))
        lines += [f"## {about[0]}", "", *about[1:], ""]
        columns: list[str] = list(_COLUMNS)
        columns[4] = columns[4].format(TARGETS[problem])
        columns[5] = columns[5].format(TARGETS[problem])
        lines += ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
        lines += [_row(way, found.get((problem, way)), own, measured[problem, way], problem) for way in WAYS]
        lines += [""]
    seconds = sum(
        epoch["seconds"] for record in records for epoch in record["epochs"] if math.isfinite(epoch["seconds"])
    )
    lines += guidance(found, measured, {problem: about[0] for problem, about in _ABOUT.items()})
    full = sum(row["seconds a step"] * _steps(problem) * _RUNS for (problem, _), row in measured.items())
    return "\n".join([*lines, _TAIL.format(runs=len(records), hours=seconds / 3600, full=full / 3600)])


def _steps(problem: str) -> int:
    """Steps of a run; every data set has 4,000 images to train on."""
    return PROBLEMS[problem].epochs * _epoch(problem)


def _epoch(problem: str) -> int:
    return math.ceil(4000 / PROBLEMS[problem].batch_size)


def _row(way: str, one: Summary | None, own: Summary | None, time: Mapping[str, Any], problem: str) -> str:
    cost = [
        f"{1e3 * time['seconds a step']:.3g}",
        f"{time['times baseline']:.2f}",
        f"{time['bytes kept over baseline']:.2f}",
    ]
    if one is None:
        return "| " + " | ".join([way, "not run", "-", "-", "-", "-", *cost, "-", "-"]) + " |"
    low, high = interval(list(one.test_errors.values()))
    seconds = one.epochs_to_target * _epoch(problem) * time["seconds a step"]
    verdict = "" if own is None or way == OURS else _verdict(lower(one.test_errors, own.test_errors))
    cells = [
        way,
        f"{one.lr:g}{' (edge)' if one.at_edge else ''}",
        f"{one.test_error:.1f} ({low:.1f} to {high:.1f}){verdict}",
        f"{one.train_loss:.2g}",
        f"{one.epochs_to_target:.1f}" if math.isfinite(one.epochs_to_target) else "not in each seed",
        f"{seconds:.3g}" if math.isfinite(seconds) else "-",
        *cost,
        f"{one.orthogonality_error:.1e}",
        "{:g} to {:g}".format(*one.good_rates),
    ]
    return "| " + " | ".join(cells) + " |"


def _verdict(verdict: Verdict) -> str:
    return {HOLDS: ", **lower**", FAILS: ", higher"}.get(verdict.answer, "")


def _rounded(value: Any) -> Any:
    """Six digits, so that the records stay small."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


# Programs that ran on each core, on average, before the times were measured; and what is said of more.
_IDLE = 0.25
_BUSY = " **Other programs ran beside: take these times, and the ratios of them, as rough.**"
# Runs of a way on a problem: one at each of some six learning rates, four seeds more at three of them.
_RUNS = 18
_COLUMNS = (
    "way",
    "learning rate",
    "test error, % (95% interval)",
    "training loss",
    "epochs to {:g}%",
    "seconds to {:g}%",
    "ms a step",
    "step over baseline",
    "bytes kept over baseline",
    "largest orthogonality error",
    "learning rates within 10% of the best",
)
_ABOUT = {
    "mlp8": (
        "MLP with 8 hidden layers, no normalization",
        "100 ReLU units a layer; the seven square weights are orthogonal, the first layer (100 x 1024) is free, since "
        "torch's maps of it take seconds a step. 12 epochs of 63 steps, batch 64.",
    ),
    "rows-5k": (
        "RNN that reads an image row by row",
        "The recurrent weight (64 x 64) is orthogonal. 10 epochs of 40 steps, batch 100.",
    ),
    "vgg-5k": (
        "VGG-style network, no normalization",
        "An eighth of VGG's width; the flattened kernel of every convolution but the first is orthogonal, its columns "
        "where it is tall. 4 epochs of 125 steps, batch 32.",
    ),
}
_HEAD = """# Which way to orthogonal weights?

This page compares the ways to keep weights orthogonal on three networks: re-parametrization, optimization on the
manifold, a penalty, and free weights. Use it to choose one, and to see what each costs.

All ways train on 5,000 real MNIST digits (4,000 to train) with momentum 0.9 where the optimizer has it, and a
learning rate that falls by a cosine. Peers run through their own public names. All start orthogonal, but for He
initialization. The learning rates are a factor of three apart: one seed widens them until the best lies between
two others, then five seeds run at the best and its neighbours. The best one has the lowest mean training loss,
never the lowest test error.

**orthonorm** is `orthogonal_weight_norm(module, name, tall="columns")`: orthonormal rows, or columns of a tall matrix,
without centring. **OLM, centred** is the paper's method: centred rows in groups of at most 64. The tables show the
orthogonality error of the whole weight, which is large there: rows of different groups are not orthogonal.

**lower** or higher: the test error is lower or higher than that of OLM by the exact sign-flip test on five paired
seeds (5%, one-sided, no correction for the number of comparisons). Seconds to a test error are its epochs,
interpolated, times the seconds of a step, which were measured apart from the training, all ways by turns.

The range of learning rates is of those whose mean test error is at most 1.1 times that of the chosen one; outside
the best and its neighbours it rests on one seed. Bytes kept are those that autograd keeps for the backward pass; an
Adam or Riemannian Adam also keeps two buffers a weight, where momentum keeps one.

![Test error of each way on each network, with 95% intervals](ways.png)
"""
_TAIL = """## Limitations

- The networks are small and the digits easy: read differences of a few tenths of a percent as noise.
- "not run" stands where runs are missing: `python -m benchmarks.ways --problem NAME --way WAY` runs or finishes them.
- The penalty's coefficient (0.1), the momentum and the other options are not tuned, for no way. torch's Muon moves the
  weights that the other ways keep orthogonal, as flattened kernels and without weight decay, and SGD the rest.
- No run behind [the reproduction](../reproduction/README.md) is used again here: batch, schedule and momentum differ.
- Free weights, the penalty and landing do not keep the constraint: the column of orthogonality errors says how far
  they are from it.

The records are {runs} runs ({hours:.1f} hours of one core, on a machine with other work). `python -m benchmarks.ways`
runs them and resumes: by the times of the steps above all of them take about {full:.1f} hours of one idle core.
`--times docs/bench` measures the steps; `--publish docs/bench` writes this page.
"""
