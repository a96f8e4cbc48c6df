"""Results that pages quote, against the committed reports and records."""

import fnmatch
import math
import re
from pathlib import Path

import pytest

from orthonorm_paper.records.cells import Cell, cells
from orthonorm_paper.records.folders import read_folder
from quoted_numbers import MARK, NAMES, SHORT, filled

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
REPORTS = [ROOT / "docs/demo/demo.md", *sorted((ROOT / "docs/reproduction").rglob("*.md"))]
RESULT = re.compile(r"\d+\.\d+ ± \d+\.\d+")


def test_a_result_on_a_page_is_in_a_report():
    reported = set(RESULT.findall("\n".join(report.read_text() for report in REPORTS)))
    quoted = {page.name: set(RESULT.findall(page.read_text())) for page in PAGES}
    assert quoted["evidence.md"]
    assert {name: found - reported for name, found in quoted.items() if not found <= reported} == {}


MARKED = [page for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")) if "<!--" in page.read_text()]


@pytest.mark.parametrize("page", MARKED, ids=[str(page.relative_to(ROOT)) for page in MARKED])
def test_a_marked_number_is_that_of_the_records(page: Path):
    text = page.read_text()
    assert len(MARK.findall(text)) == text.count("<!--=")
    assert len(SHORT.findall(text)) == len(re.findall(r"<!--[\w-]+-->", text))
    assert filled(text) == text


@pytest.mark.parametrize("page", MARKED, ids=[str(page.relative_to(ROOT)) for page in MARKED])
def test_no_marker_opens_a_line(page: Path):
    # In Markdown a comment at the start of a line ends the paragraph above it.
    assert re.findall(r"^ *<!--=.*", page.read_text(), re.MULTILINE) == []


def test_every_name_of_a_number_is_in_readme():
    names = re.findall(r"<!--([\w-]+)-->", (ROOT / "README.md").read_text())
    assert sorted(names) == sorted(NAMES)


def test_a_number_before_a_short_marker_is_filled_with_its_spread():
    text = "error 9.99 ± 9.99<!--vgg-->% against 9.9<!--vgg-he-->%"
    expected = "error <!--= test_error vgg-5k OLM@* -->9.99 ± 9.99<!--/-->% "
    expected += "against <!--= test_error vgg-5k plain-he@* -->9.9<!--/-->%"
    assert re.sub("<!--.*?-->", "", filled(text)) == re.sub("<!--.*?-->", "", filled(expected))
    assert filled(text) != text


def recorded(experiment: str, pattern: str) -> list[Cell]:
    """The cells of the records of an experiment whose names fit."""
    records = read_folder(ROOT / "reproduction" / "records" / experiment)
    return list(cells(record for record in records if fnmatch.fnmatchcase(record.run.id, pattern)))


def test_four_layers_or_eight():
    def losses(method: str, depth: int) -> list[float]:
        tried = recorded("omdsm-5k", f"{method}-mlp{depth}-b256-*")
        return min(tried, key=lambda cell: cell.mean("train_loss")).finals("train_loss")

    assert max(losses("plain-orthogonal", 4)) < min(losses("OLM-balanced", 4))
    assert max(losses("OLM-balanced", 8)) < min(losses("plain-orthogonal", 8))


def test_olm_trains_at_every_rate_from_a_tenth_to_one_and_nothing_does_at_five():
    for cell in recorded("omdsm-5k", "OLM-mlp*-b256-*"):
        if cell.run.lr in (0.1, 0.5, 1.0):
            assert max(cell.finals("train_loss")) < 0.5
    at_five = recorded("omdsm-5k", "*-b256-lr5-*")
    assert len(at_five) == 23
    assert min(min(cell.finals("train_loss"), default=math.inf) for cell in at_five) > 2
    for method in ("plain-he", "plain-orthogonal"):
        assert any(cell.diverged for cell in recorded("omdsm-5k", f"{method}-mlp*-lr1-*"))
