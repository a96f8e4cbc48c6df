"""No best learning rate of the committed records is at an edge of what ran, but for those that are listed by name.

The list is `open_edges.toml` of the reports, and report.md prints it. What a headline or a claim about Figure 2 rests
on may not be in it.
"""

from pathlib import Path

import pytest

from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.stability import edges
from orthonorm_paper.reports.open_edges import edge_name, open_edges

RECORDS = Path(__file__).parents[3] / "reproduction" / "records"
NAMES = sorted(path.name.partition(".")[0] for path in RECORDS.iterdir())


def at_an_edge(name: str) -> list[str]:
    return sorted({edge_name(run) for run, _ in edges(read_folder(RECORDS / name))})


@pytest.mark.parametrize("name", ["headline", "omdsm-5k", "omdsm-5k-constant"])
def test_no_best_learning_rate_of_the_headline_or_figure_2_is_at_an_edge(name: str):
    assert at_an_edge(name) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_best_learning_rates_at_an_edge_are_those_that_are_listed(name: str):
    _, listed = open_edges().get(name, ("", []))
    # Where an experiment stops on purpose, none is listed by name.
    assert listed is None or at_an_edge(name) == sorted(listed)


def test_only_experiments_with_committed_records_are_listed():
    assert set(open_edges()) <= set(NAMES)
