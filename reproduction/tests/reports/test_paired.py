"""Reports by paired seeds, and of the three forms: their numbers are those of the records, by hand."""

import dataclasses
from pathlib import Path

import pytest
from scipy import stats

from orthonorm_paper.records.files import Record, write_record
from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.schedules import Constant
from orthonorm_paper.reports.demo import RECORDED
from orthonorm_paper.reports.forms import forms_text
from orthonorm_paper.reports.paired import BASELINES, COMPARED, ORTHOGONAL, lower, paired_text, standing
from orthonorm_paper.reports.publish import write_report
from paper_support.recorded import changed, record

OWN, OTHER = (5.0, 5.5, 5.2, 5.1, 5.4), (6.0, 6.1, 6.4, 5.9, 6.6)


def ended(method: str, lr: float, loss: float, errors: tuple[float, ...]) -> list[Record]:
    """A record a seed of the headline; the helper adds the seed to the error, which is taken off here."""
    return [
        record(method, lr, (2.3, loss), seed=seed, depth=8, test_error=error - seed, experiment="headline")
        for seed, error in enumerate(errors)
    ]


RECORDS = [
    *ended("orthonorm", 0.5, 0.01, OWN),
    # A higher training loss, a lower test error, and another one with too few seeds: neither stands.
    *ended("orthonorm", 1.0, 0.02, (1.0,) * 5),
    *ended("orthonorm", 0.1, 0.001, (1.0,) * 2),
    *ended("plain-he", 0.1, 0.03, OTHER),
]


def row(text: str, label: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(f"| {label} |")).strip("| ").split(" | ")


def test_a_method_stands_at_the_lowest_training_loss_of_all_its_seeds_and_is_compared_seed_by_seed():
    expected = stats.ttest_rel(OTHER, OWN).confidence_interval(0.95)
    found = row(paired_text(RECORDS), "orthonorm")
    assert found[:3] == ["orthonorm", "0.5", "5"]
    assert found[4] == "5.24 ± 0.21"
    assert found[5] == f"+0.96 ({expected.low:+.3g} to {expected.high:+.3g}): **holds**"
    assert row(paired_text(RECORDS), "plain-he")[5] == "–"


def test_seeds_that_one_side_lacks_are_left_out_of_a_pair():
    chosen = standing([*ended("orthonorm", 0.5, 0.01, OWN), *ended("plain-he", 0.1, 0.03, OTHER[:4])])
    own, other = chosen["orthonorm"], chosen["plain-he"]
    assert own is not None
    assert other is not None
    assert (lower(own, other).seeds, lower(own, other).answer) == (4, "undecided")


def test_a_method_that_diverged_at_every_rate_is_said_to():
    lost = [record("plain", 0.5, (2.3,), seed=s, depth=8, diverged=True, experiment="headline") for s in range(5)]
    assert row(paired_text([*RECORDS, *lost]), "plain")[3] == "diverged"


def test_the_report_is_written_with_its_figure(tmp_path: Path):
    for one in RECORDS:
        write_record(tmp_path / "headline", one)
    markdown, *figures, page = write_report("headline", tmp_path / "headline", tmp_path / "out")
    assert [path.name for path in (markdown, *figures, page)] == [
        "report.md",
        "errors.png",
        "errors.svg",
        "report.html",
    ]


def constant(one: Record) -> Record:
    run = dataclasses.replace(one.run, experiment="omdsm-5k-constant", schedule=Constant())
    return changed(one, id=run.id, run=run.to_json())


def test_the_three_forms_are_told_apart_by_experiment_and_label():
    curves = {"EI+QR": (2.3, 0.9, 0.5), "EI+QR-released": (2.3, 0.25, 1.3), "plain": (2.3, 0.4, 0.1)}
    halved = [record(method, 0.1, curve, seed=s) for method, curve in curves.items() for s in range(5)]
    steady = [constant(record("EI+QR", 0.1, (2.3, 0.9, 0.7), seed=s)) for s in range(5)]
    text = forms_text([*halved, *steady])
    lines = {tuple(line.strip("| ").split(" | ")[:2]): line.strip("| ").split(" | ")[2:] for line in text.splitlines()}
    assert lines["EI+QR", "right, constant"] == ["5", "0.7"]
    assert lines["EI+QR", "right, halved"] == ["5", "0.5"]
    assert lines["EI+QR", "as released"] == ["5", "1.3 (lowest 0.25, 0 of 5 stable)"]
    unstable = "EI+QR diverges or is unstable above a learning rate of 0.05"
    answers = [line.split(" | ")[1:3] for line in text.splitlines() if line.startswith(f"| {unstable}")]
    assert answers == [
        ["right, constant", "**does not hold**"],
        ["right, halved", "**does not hold**"],
        ["as released", "**holds**"],
    ]


@pytest.mark.parametrize("name", COMPARED)
def test_an_experiment_by_pairs_is_one_of_the_table(name: str):
    from orthonorm_paper.experiments import EXPERIMENTS

    assert name in EXPERIMENTS


def test_the_interval_that_the_demo_prints_is_that_of_the_committed_records():
    records = Path(__file__).parents[2] / "records" / "headline"
    chosen = standing(read_folder(records))
    own, baselines = chosen[ORTHOGONAL], [chosen[label] for label in BASELINES]
    plain = min((cell for cell in baselines if cell is not None), key=lambda cell: cell.mean("test_error"))
    assert own is not None
    assert own.seeds == plain.seeds
    found = stats.ttest_rel(plain.finals("test_error"), own.finals("test_error")).confidence_interval(0.95)
    mean = plain.mean("test_error") - own.mean("test_error")
    assert (RECORDED.seeds, RECORDED.mean, RECORDED.low, RECORDED.high) == (
        len(own.seeds),
        pytest.approx(mean, abs=0.005),
        pytest.approx(found.low, abs=0.005),
        pytest.approx(found.high, abs=0.005),
    )
