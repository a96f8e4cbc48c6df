"""The figure of test error against the learning rate, which README shows: what is drawn is what the records have."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from orthonorm_paper.records.files import DIVERGED, Record
from orthonorm_paper.reports.figures import learning_rates
from orthonorm_paper.reports.figures.learning_rates import draw_learning_rates, learning_rates_text
from orthonorm_paper.reports.figures.losses import COLOURS
from paper_support.recorded_tables import errors_record


def ended(experiment: str, method: str, lr: float, *errors: float | None) -> list[Record]:
    """A record a seed; None for a run that diverged."""
    return [
        errors_record(
            experiment,
            method,
            (90.0, error),
            lr=lr,
            seed=seed,
            outcome="completed" if error is not None else DIVERGED,
        )
        for seed, error in enumerate(errors)
    ]


RECORDS = [
    *ended("headline", "OLM-balanced", 0.5, 5.0, 6.0, 7.0),
    *ended("headline", "OLM-balanced", 1.0, 4.0),
    *ended("headline", "OLM-uncentred", 1.0, 3.0),  # no line of this figure
    *ended("headline", "plain-he", 0.1, 8.0),
    *ended("vgg-5k", "OLM", 0.1, 2.0),
    *ended("vgg-5k", "plain-orthogonal", 0.02, 9.0, 11.0),
    *ended("vgg-5k", "plain-orthogonal", 0.05, 9.0, None),
]
ORTHOGONAL, HE, START = COLOURS[:3]


def points(line: Line2D) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in np.asarray(line.get_xydata())]


def filled(line: Line2D) -> bool:
    return to_hex(line.get_markerfacecolor()) == line.get_color()


def test_points_are_means_bars_reach_the_ends_and_a_cross_marks_divergence(monkeypatch: pytest.MonkeyPatch):
    drawn: list[Figure] = []
    monkeypatch.setattr(learning_rates, "save_figure", lambda figure, stem: drawn.append(figure) or [stem])
    assert draw_learning_rates(RECORDS, Path("stem")) == [Path("stem")]
    left, right = drawn[0].axes

    def marks(axis: Axes, marker: str, colour: str) -> list[tuple[float, float, bool]]:
        """Learning rate (to the shift that keeps points apart), value, and whether the mark is filled."""
        lines = [line for line in axis.lines if line.get_marker() == marker and line.get_color() == colour]
        return [(*points(line)[0], filled(line)) for line in lines]

    def bars(axis: Axes) -> list[list[float]]:
        found = [points(line) for line in axis.lines if line.get_linestyle() == "-" and len(points(line)) == 2]
        return [[y for _, y in ends] for ends in found if ends[0][0] == ends[1][0]]

    assert marks(left, "o", ORTHOGONAL) == [(0.5, 6.0, True), (1.0, 4.0, False)]
    assert marks(left, "s", HE) == [(pytest.approx(0.1, rel=0.06), 8.0, False)]
    assert bars(left) == [[5.0, 7.0]]
    assert marks(right, "^", START) == [(pytest.approx(0.02, rel=0.06), 10.0, True)]
    assert bars(right) == [[9.0, 11.0]]
    (cross,) = [line for line in right.lines if line.get_marker() == "x"]
    assert points(cross)[0][1] > 100
    assert points(cross)[0][0] == pytest.approx(0.05, rel=0.06)


@pytest.mark.parametrize("missing", ["headline", "vgg-5k"])
def test_nothing_is_drawn_without_both_networks(missing: str, tmp_path: Path):
    records = [record for record in RECORDS if record.run.experiment != missing]
    assert draw_learning_rates(records, tmp_path / "stem") == []
    assert list(tmp_path.iterdir()) == []


def test_the_text_has_the_budget_of_each_network():
    text = "\n".join(learning_rates_text(RECORDS, "stem.png"))
    assert "](stem.png)" in text
    assert "seeds 0, 1, 2" in text
    assert "seeds 0, 1\n" in text
