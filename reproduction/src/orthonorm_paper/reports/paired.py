"""Reports that compare methods by paired seeds: the headline, and the ablations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orthonorm_paper.records.cells import DASH, Cell, best, cells
from orthonorm_paper.records.files import Record
from orthonorm_paper.records.stability import complete
from orthonorm_paper.records.variations import base_name
from orthonorm_paper.reports.claims import rule
from orthonorm_paper.reports.claims.rule import RULE, Verdict
from orthonorm_paper.reports.figures.losses import COLOURS, draw_legend, panels, save_figure
from orthonorm_paper.reports.tables.layouts import label_of

from .markdown import circumstances, escape, table

BASELINES = ("plain", "plain-he", "plain-orthogonal")
# What the demo and the headline compare with them: the paper's centred rows, in groups of equal size.
ORTHOGONAL = "OLM-balanced"
_FIELD = "test_error"


@dataclass(frozen=True)
class Compared:
    """A comparison by paired seeds.

    Attributes:
        title: of its report.
        references: labels with which every method is compared.
        says: what the comparison asks, one line.
    """

    title: str
    references: tuple[str, ...]
    says: str


_INITIALIZATIONS = (
    "The baseline has three initializations: plain is the paper's, uniform in ±1/sqrt(d); plain-he is He "
    "initialization, plain-orthogonal an orthogonal one."
)
_ONE_CHOICE = "orthonorm is what the library does by default; each other line changes the one choice that it names"
COMPARED = {
    "headline": Compared(
        "orthogonal weights against the baseline, 8 hidden layers of 100 ReLU units", BASELINES, _INITIALIZATIONS
    ),
    "headline-avx2": Compared(
        "the headline again, computed with AVX2 instructions instead of AVX-512", BASELINES, _INITIALIZATIONS
    ),
    "ablation-mlp-5k": Compared(
        "one choice at a time, 8 hidden layers of 100 ReLU units",
        ("orthonorm",),
        f"{_ONE_CHOICE}, and the last ones are other ways to orthogonal weights.",
    ),
    "ablation-adam-5k": Compared(
        "one choice at a time with Adam, 8 hidden layers of 100 ReLU units",
        ("orthonorm",),
        f"{_ONE_CHOICE}, and the last ones are free weights.",
    ),
    "ablation-vgg-5k": Compared(
        "one choice at a time, VGG-style network at a quarter of its width", ("orthonorm",), f"{_ONE_CHOICE}."
    ),
    "ablation-rows-5k": Compared(
        "one choice at a time, the recurrent weight of an RNN", ("recurrent-orthonorm",), f"recurrent-{_ONE_CHOICE}."
    ),
}


def standing(records: Sequence[Record]) -> dict[str, Cell | None]:
    """Each label's cell at the learning rate with the lowest mean final training loss, of those that every seed ran.

    None where every one diverged.
    """
    return {label: best(complete(own), "train_loss") for label, own in _tried(records).items()}


def _tried(records: Sequence[Record]) -> dict[str, list[Cell]]:
    """Each label's cells."""
    found: dict[str, list[Cell]] = {}
    for cell in cells(records):
        found.setdefault(label_of(cell.run), []).append(cell)
    return found


def lower(own: Cell, other: Cell, field: str = _FIELD) -> Verdict:
    """Whether a method ends lower than another, by the seeds that both have."""
    ours, theirs = ({record.run.seed: record.final(field) for record in cell.records} for cell in (own, other))
    return rule.lower(ours, theirs)


def write_paired(records: Sequence[Record], folder: Path) -> list[Path]:
    """Write ``report.md`` and the figure of errors against learning rates; returns the paths, the text first."""
    markdown = folder / "report.md"
    markdown.write_text(paired_text(records), encoding="utf-8")
    return [markdown, *_draw(records, folder / "errors")]


def paired_text(records: Sequence[Record]) -> str:
    """Markdown of a comparison by paired seeds."""
    name = records[0].run.experiment
    compared = COMPARED[base_name(name)]
    chosen = standing(records)
    references = [label for label in compared.references if label in chosen]
    columns = ["method", "best learning rate", "seeds", "train loss", "test error, %"]
    columns += [f"lower than {label} by (95% interval)" for label in references]
    rates = sorted({record.run.lr for record in records})
    return "\n".join(
        [
            f"# {name}: {compared.title}",
            "",
            *(f"- {escape(line)}" for line in circumstances(records)),
            f"- {escape(compared.says)}",
            "- The best learning rate has the lowest mean final training loss, of those that all seeds of the method "
            "ran. Mean ± standard deviation over the seeds in the last epoch.",
            "",
            *table(columns, [_row(label, cell, chosen, references) for label, cell in chosen.items()]),
            "",
            "The same comparison of the training loss in the last epoch:",
            "",
            *table(
                ["method", *(f"training loss lower than {label} by (95% interval)" for label in references)],
                [
                    (escape(label), *_differences(label, cell, chosen, references, "train_loss"))
                    for label, cell in chosen.items()
                    if cell is not None
                ],
            ),
            "",
            RULE,
            "",
            "Test error at each learning rate, % (mean ± standard deviation, and the number of seeds):",
            "",
            *table(("method", *(f"{lr:g}" for lr in rates)), _by_rate(records, rates)),
            "",
            "![test error against learning rate](errors.png)",
            "",
        ]
    )


def _row(label: str, cell: Cell | None, chosen: dict[str, Cell | None], references: Sequence[str]) -> tuple[str, ...]:
    if cell is None:
        return (escape(label), DASH, DASH, "diverged", "diverged", *[DASH] * len(references))
    values = (f"{cell.run.lr:g}", str(len(cell.seeds)), cell.text("train_loss", 4), cell.text(_FIELD, 2))
    return (escape(label), *values, *_differences(label, cell, chosen, references, _FIELD))


def _differences(
    label: str, cell: Cell, chosen: dict[str, Cell | None], references: Sequence[str], field: str
) -> list[str]:
    """Against each reference how much lower, and the verdict."""
    texts: list[str] = []
    for other in references:
        against = chosen[other]
        verdict = None if label == other or against is None else lower(cell, against, field)
        texts.append(DASH if verdict is None else f"{verdict.difference}: **{verdict.answer}**")
    return texts


def _by_rate(records: Sequence[Record], rates: Sequence[float]) -> list[tuple[str, ...]]:
    by_place = {(label_of(cell.run), cell.run.lr): cell for cell in cells(records)}
    rows = []
    for label in dict.fromkeys(label for label, _ in by_place):
        found = [by_place.get((label, lr)) for lr in rates]
        rows.append((escape(label), *(DASH if c is None else f"{c.text(_FIELD, 1)} ({len(c.seeds)})" for c in found)))
    return rows


def _draw(records: Sequence[Record], stem: Path) -> list[Path]:
    """Mean test error against the learning rate, a line for each method; diverged cells leave a gap."""
    figure, (axis,) = panels([""], "mean of the seeds; bars: standard deviation", width=6.0, height=4.0)
    axis.set(xlabel="learning rate", ylabel="test error, %", xscale="log")
    if not any(record.final(_FIELD) > 0 for record in records):
        axis.set_yscale("linear")  # a logarithmic one has no range where every error is 0
    errors = {record.final(_FIELD) for record in records if math.isfinite(record.final(_FIELD))}
    # A single value leaves matplotlib no range.
    for values, limit in (({record.run.lr for record in records}, axis.set_xlim), (errors, axis.set_ylim)):
        if len(values) == 1 and (value := values.pop()) > 0:
            limit(value / 2, value * 2)
    for number, (label, own) in enumerate(_tried(records).items()):
        own = sorted(own, key=lambda cell: cell.run.lr)
        means = [cell.mean(_FIELD) if not cell.diverged else math.nan for cell in own]
        spreads = [cell.deviation(_FIELD) or 0.0 for cell in own]
        line, colour = "-" if number < len(COLOURS) else "--", COLOURS[number % len(COLOURS)]
        rates = [cell.run.lr for cell in own]
        axis.errorbar(rates, means, spreads, label=label, capsize=2, linewidth=1.1, color=colour, linestyle=line)
    draw_legend(axis, 6.0)
    return save_figure(figure, stem)
