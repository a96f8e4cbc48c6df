"""The page of guarantees shows the figures of the last campaign, and of every property that there is."""

import ast
import json
import re
from pathlib import Path

import pytest

from campaign.figures import Figures
from campaign.page import DOCS, table, with_table

PROPERTIES = [file for file in Path(__file__).parent.glob("test_*.py") if file != Path(__file__)]
CONTENT = json.loads((DOCS / "campaign.json").read_text())


def test_the_page_has_the_campaigns_figures():
    page = (DOCS / "guarantees.md").read_text()
    assert with_table(page, CONTENT) == page
    assert CONTENT["profile"] == "nightly"


def test_every_property_was_run_and_held():
    names = set()
    for file in PROPERTIES:
        tree = ast.parse(file.read_text())
        assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        names |= {ast.literal_eval(node.value) for node in assigned if ast.unparse(node.targets[0]) == "name"}
    assert set(CONTENT["properties"]) == names
    for entry in CONTENT["properties"].values():
        assert entry["cases"] > 0
        assert 0 <= entry["share"] <= 1


def test_the_campaign_runs_every_file_of_properties():
    recipe = (Path(__file__).parents[2] / "Makefile").read_text().partition("\ncampaign:")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"tests/campaign/(test_\w+\.py)", recipe)) == sorted(file.name for file in PROPERTIES)


def test_a_table_says_what_was_counted(tmp_path: Path):
    figures = Figures()
    for error in (0.5, 2.0, 1.0):
        figures.case("|W| at most 1")
        figures.expect("|W| at most 1", error, 4.0)
        figures.worst("|W| at most 1", "float32", error)
    with pytest.raises(AssertionError, match=r"at most 1: 5\.000e\+00 > 4"):
        figures.expect("|W| at most 1", 5.0, 4.0)
    with pytest.raises(AssertionError, match="nan"):
        figures.expect("|W| at most 1", float("nan"), 4.0)
    figures.write(tmp_path / "campaign.json")
    text = table(json.loads((tmp_path / "campaign.json").read_text()))
    assert re.search(r"^\| \\\|W\\\| at most 1 \| 3 \| 3 \| 5\.0e-01 \|$", text, re.MULTILINE)
    assert re.search(r"^\| \\\|W\\\| at most 1 \| 2\.0e\+00 \|  \|  \|  \|$", text, re.MULTILINE)
