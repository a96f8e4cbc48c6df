"""The experiments that a headline or a claim about Figure 2 rests on have no best learning rate at an edge.

Those of the other experiments are listed in docs/reproduction/report.md, which `test_committed_report.py` compares.
"""

from pathlib import Path

import pytest

from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.stability import edges

RECORDS = Path(__file__).parents[3] / "reproduction" / "records"


@pytest.mark.parametrize("name", ["headline", "omdsm-5k"])
def test_no_best_learning_rate_is_at_an_edge(name: str):
    found = edges(read_folder(RECORDS / name))
    assert [(run.method, run.method_args, run.lr, side) for run, side in found] == []
