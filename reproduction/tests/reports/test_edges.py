"""No best learning rate of the committed records is at an edge, except where an experiment stops on purpose."""

from pathlib import Path

import pytest

from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.stability import edges
from orthonorm_paper.reports.overview import STOP_ON_PURPOSE
from orthonorm_paper.reports.tables.layouts import label_of

RECORDS = Path(__file__).parents[3] / "reproduction" / "records"
NAMES = {path.name.partition(".")[0] for path in RECORDS.iterdir()}


@pytest.mark.parametrize("name", sorted(NAMES - STOP_ON_PURPOSE.keys()))
def test_no_best_learning_rate_is_at_an_edge(name: str):
    assert sorted(f"{label_of(run)}, {run.model}" for run, _ in edges(read_folder(RECORDS / name))) == []


def test_only_experiments_with_committed_records_stop_on_purpose():
    assert STOP_ON_PURPOSE.keys() <= NAMES
