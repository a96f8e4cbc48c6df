"""Figures of errors: the paper's conventions, seen in the lines that are drawn."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from orthonorm_paper.records.cells import cells
from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.figures import curves
from orthonorm_paper.reports.figures.curves import draw_error, draw_errors
from orthonorm_paper.reports.tables.layouts import FULL, REDUCED, SYNTHETIC, layouts
from orthonorm_paper.reports.tables.placement import place
from paper_support.recorded_tables import errors_record, seeds_of

LAYOUTS = layouts()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that are saved, in place of their files."""
    figures: list[Figure] = []

    def keep(figure: Figure, stem: Path) -> list[Path]:
        figures.append(figure)
        return [stem.with_suffix(".png")]

    monkeypatch.setattr(curves, "save_figure", keep)
    return figures


def draw(layout: str, variant: str, records: list[Record]) -> list[Path]:
    return draw_errors(place(LAYOUTS[layout], variant, records), Path("errors"))


def style(line: Line2D) -> tuple[object, ...]:
    return line.get_linestyle(), line.get_marker()


def test_training_is_solid_and_test_dashed_with_triangles():
    axis: Axes = Figure().subplots()
    records = [
        errors_record("vgg", "OLM", (60.0, 30.0), train=(50.0, 10.0)),
        errors_record("vgg", "OLM", (70.0, 50.0), train=(70.0, 20.0), seed=1),
    ]
    (cell,) = cells(records)
    draw_error(axis, cell, "train_error", "red", "OLM")
    draw_error(axis, cell, "test_error", "red", None)
    train, test = axis.get_lines()
    assert np.asarray(train.get_xydata()).tolist() == [[1.0, 60.0], [2.0, 15.0]]
    assert np.asarray(test.get_xydata()).tolist() == [[1.0, 65.0], [2.0, 40.0]]
    assert (style(train), style(test)) == (("-", "None"), ("--", "^"))
    assert axis.get_legend_handles_labels()[1] == ["OLM"]


def test_a_cross_marks_where_a_run_diverged():
    axis: Axes = Figure().subplots()
    (cell,) = cells([errors_record("vgg", "OLM", (60.0, 80.0), outcome="diverged")])
    draw_error(axis, cell, "test_error", "red", "OLM")
    assert style(axis.get_lines()[1])[1] == "x"
    assert np.asarray(axis.get_lines()[1].get_xydata()).tolist() == [[2.0, 80.0]]


def test_a_panel_for_each_data_set_with_data_set_budget_and_seeds_at_the_foot(drawn: list[Figure]):
    records = [*seeds_of("vgg", "OLM", (9.0, 8.0)), *seeds_of("vgg", "plain", (9.0,), dataset="cifar100")]
    draw("vgg", FULL, records)
    (figure,) = drawn
    assert [axis.get_title() for axis in figure.axes] == ["(a) CIFAR-10", "(b) CIFAR-100"]
    assert [len(axis.get_lines()) for axis in figure.axes] == [2, 2]
    foot = " ".join(figure.get_supxlabel().split())
    assert foot.startswith("Solid: training; dashed with triangles: test; mean over the seeds; made-up numbers;")
    assert foot.endswith("batch 256: 3 epochs of 10 steps, constant learning rate; seeds 0, 1")
    assert {axis.get_yscale() for axis in figure.axes} == {"linear"}


def test_figure_3_has_a_panel_for_training_and_one_for_test(drawn: list[Figure]):
    draw("pie-groups", FULL, seeds_of("pie-groups", "OLM", (9.0,), dataset="pie", model="pie-mlp"))
    axes = drawn[0].axes
    assert [axis.get_title() for axis in axes] == ["(a) PIE: training error", "(b) PIE: test error"]
    assert [style(line) for axis in axes for line in axis.get_lines()] == [("-", "None"), ("--", "^")]
    assert [axis.get_legend_handles_labels()[1] for axis in axes] == [["OLM"], ["OLM"]]


def test_a_synthetic_figure_says_so_in_titles_legend_and_foot(drawn: list[Figure]):
    draw("vgg", SYNTHETIC, seeds_of("vgg-synthetic", "OLM", (9.0,), dataset="cifar10-synthetic"))
    (axis,) = drawn[0].axes
    assert axis.get_title() == "(a) CIFAR-10, synthetic"
    assert axis.get_legend_handles_labels()[1] == ["OLM (synthetic)"]
    assert drawn[0].get_supxlabel().startswith("Synthetic data. ")


def test_of_several_rates_the_one_with_the_lowest_training_loss_is_drawn(drawn: list[Figure]):
    records = [
        errors_record("vgg-5k", "OLM", (20.0, 5.0), train=(30.0, 9.0), lr=0.1),
        errors_record("vgg-5k", "OLM", (20.0, 6.0), train=(30.0, 8.0), lr=0.5),
        errors_record("vgg-5k", "plain", (20.0, 6.0), train=(30.0, 8.0), lr=0.5),
    ]
    draw("vgg", REDUCED, records)
    assert drawn[0].axes[0].get_legend_handles_labels()[1] == ["plain", "OLM, learning rate 0.5"]
    assert "several learning rates the one with the lowest training loss" in " ".join(drawn[0].get_supxlabel().split())


def test_nothing_is_drawn_where_no_epoch_was_recorded(drawn: list[Figure]):
    assert draw("vgg", FULL, [errors_record("vgg", "OLM", (), outcome="diverged")]) == []
    assert drawn == []
