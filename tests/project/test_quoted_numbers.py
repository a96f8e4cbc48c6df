"""Numbers that the README and docs/choosing.md quote, against the committed records and reports."""

import fnmatch
import json
import math
import re
from pathlib import Path

import pytest

from orthonorm_paper.records.cells import Cell, cells
from orthonorm_paper.records.folders import read_folder

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
CHOOSING = (ROOT / "docs" / "choosing.md").read_text()
RESULTS = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \| \[[\w-]+\]\((docs/\S+\.md)\) \|$", README, re.MULTILINE)
QUOTED = re.compile(r"(\d+\.\d+ ± \d+\.\d+) \(([\w-]+)\)")


def rows(report: str, method: str) -> str:
    """The rows of a method in a report."""
    return "\n".join(re.findall(rf"^\| {re.escape(method)} \|.*$", (ROOT / report).read_text(), re.MULTILINE))


@pytest.mark.parametrize(("plain", "ours", "report"), RESULTS, ids=[row[2] for row in RESULTS])
def test_a_result_in_the_readme_is_in_the_report_that_it_names(plain: str, ours: str, report: str):
    for cell in (plain, ours):
        (number, method) = QUOTED.fullmatch(cell.strip()).groups()  # type: ignore[union-attr]
        assert f" {number} " in rows(report, method)


def test_the_results_and_what_they_do_not_show_are_found():
    assert len(RESULTS) == 5
    (vgg,) = re.findall(r"VGG under OLM ends at (\S+ ± \S+)", README)
    assert f"{vgg} (3 seeds, rate 0.02)" in rows("docs/reproduction/vgg-5k/report.md", "OLM")
    (rnn,) = re.findall(r"the RNN without a\s+scale at\s+(\d\S+ ± \d+\.\d+)", README)
    assert f" {rnn} " in rows("docs/reproduction/rows-5k/report.md", "recurrent-OLM")


def recorded(experiment: str, pattern: str) -> list[Cell]:
    """The cells of the records of an experiment whose names fit."""
    records = read_folder(ROOT / "reproduction" / "records" / experiment)
    return list(cells(record for record in records if fnmatch.fnmatchcase(record.run.id, pattern)))


def train_loss(experiment: str, pattern: str) -> float:
    """The lowest mean training loss of the last epoch over the rates."""
    found = recorded(experiment, pattern)
    assert found
    return min(cell.mean("train_loss") for cell in found)


def listed(pattern: str) -> list[float]:
    """The numbers of a sentence of docs/choosing.md."""
    (found,) = re.findall(pattern, CHOOSING)
    return [float(number) for number in re.findall(r"\d+\.\d+", " ".join(found) if isinstance(found, tuple) else found)]


@pytest.mark.parametrize(
    ("experiment", "sentence"),
    [("omdsm-5k-constant", r"at a training loss of ([\d., and]+),"), ("omdsm-5k", r"with halving at ([\d., and]+)\.")],
)
def test_riemannian_methods_at_a_rate_of_one(experiment: str, sentence: str):
    wanted = [train_loss(experiment, f"{method}-mlp4-b256-lr1-*") for method in ("EI+QR", "CayT", "QR")]
    assert listed(sentence) == [pytest.approx(loss, abs=0.005) for loss in wanted]


def test_recurrent_weights():
    scaled = train_loss("rows-5k", "recurrent-OLM-scale-rnn*")
    unscaled, start = train_loss("rows-5k", "recurrent-OLM-rnn*"), train_loss("rows-5k", "recurrent-start-rnn*")
    quoted = listed(r"OLM ends at (\S+) with it, (\S+) without \(orthogonal start: (\S+)\)")
    assert quoted == [pytest.approx(loss, abs=0.005) for loss in (scaled, unscaled, start)]
    quoted = listed(r"free weights stay near (\S+) \(RNN\) and OLM reaches (\d\.\d+)")
    free = [train_loss("copying", f"recurrent-{start}-rnn*") for start in ("plain", "start")]
    assert quoted == [
        pytest.approx(min(free), abs=0.01),
        pytest.approx(train_loss("copying", "recurrent-OLM-rnn*"), abs=5e-4),
    ]
    assert max(free) == pytest.approx(min(free), abs=0.02)


def test_four_layers_or_eight():
    def losses(method: str, depth: int) -> list[float]:
        tried = recorded("omdsm-5k", f"{method}-mlp{depth}-b256-*")
        return min(tried, key=lambda cell: cell.mean("train_loss")).finals("train_loss")

    assert max(losses("plain-orthogonal", 4)) < min(losses("OLM-balanced", 4))
    assert max(losses("OLM-balanced", 8)) < min(losses("plain-orthogonal", 8))


def test_olm_trains_at_every_rate_from_a_tenth_to_one_and_nothing_does_at_five():
    assert re.search(r"it trained at 0\.1, 0\.5 and 1 in every seed", CHOOSING)
    for cell in recorded("omdsm-5k", "OLM-mlp*-b256-*"):
        if cell.run.lr in (0.1, 0.5, 1.0):
            assert max(cell.finals("train_loss")) < 0.5
    at_five = recorded("omdsm-5k", "*-b256-lr5-*")
    assert len(at_five) == 22
    assert min(min(cell.finals("train_loss"), default=math.inf) for cell in at_five) > 2
    for method in ("plain-he", "plain-orthogonal"):
        assert any(cell.diverged for cell in recorded("omdsm-5k", f"{method}-mlp*-lr1-*"))


def benched(suite: str, column: str, **where: str) -> list[float]:
    """The figures in a column of a committed benchmark, of the rows that have the given values."""
    found = json.loads((ROOT / "docs" / "bench" / f"{suite}.json").read_text())["rows"]
    return [row[column] for row in found if all(row[key].startswith(value) for key, value in where.items())]


SPEED = " ".join(README[README.index("## Speed") : README.index("## Beside other code")].split())


@pytest.mark.parametrize(
    ("sentence", "suite", "column", "where"),
    [
        (
            r"is (\S+) times as fast as torch's default",
            "peers",
            "times ours, one group",
            {"layer": "torch orthogonal, h"},
        ),
        (r"and (\S+) times as fast as its Cayley", "peers", "times ours, one group", {"layer": "torch orthogonal, c"}),
        (
            r"512 x 4608 it takes (\S+) times",
            "transform",
            "times the floor",
            {"shape": "512 x 4608", "path": "orthonorm, a"},
        ),
        (r"batch 32 takes (\S+) times a plain", "steps", "times plain", {"network": "VGG", "weights": "orthonorm, r"}),
        (r"small MLP (\S+) to (\S+) times", "steps", "times plain", {"network": "MLP", "weights": "orthonorm, r"}),
        (r"64 x 64 (\S+) times", "steps", "times plain", {"network": "ResNet", "weights": "orthonorm, r"}),
        (r"Stiefel\w+` is (\S+) to (\S+) times", "optim", "first / this", {"case": "200", "step": "StiefelSGD"}),
        (r"and (\S+) to (\S+) times on 20", "optim", "first / this", {"case": "20 of", "step": "StiefelSGD"}),
    ],
)
def test_a_speed_in_the_readme_is_in_the_committed_benchmark(
    sentence: str, suite: str, column: str, where: dict[str, str]
):
    quoted = re.search(sentence, SPEED)
    assert quoted is not None
    measured = sorted(benched(suite, column, **where))
    digits = [len(number.partition(".")[2]) for number in quoted.groups()]
    assert [float(number) for number in quoted.groups()] == [
        round(figure, places) for figure, places in zip(measured, digits, strict=True)
    ]
