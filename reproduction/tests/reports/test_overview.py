"""The report of everything: one Markdown text and one HTML page from folders of records."""

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from orthonorm_paper.cli.app import build_app
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.experiments import EXPERIMENTS
from orthonorm_paper.records.cells import DASH
from orthonorm_paper.records.files import write_record
from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.reports.overview import overview
from orthonorm_paper.reports.paper_numbers import paper_numbers
from orthonorm_paper.reports.publish import report_names, write_all, write_report
from paper_support.html_checks import check_self_contained
from paper_support.recorded import changed
from paper_support.recorded_tables import errors_record, seeds_of

RECORDS = [
    *seeds_of("vgg-5k", "plain", (9.0, 8.0), dataset="mnist-5k-rgb", description="5,000 made-up digits"),
    *seeds_of("vgg-5k", "OLM", (5.0, 6.0), dataset="mnist-5k-rgb", description="5,000 made-up digits"),
    *seeds_of("pie-5k", "<script>alert(1)</script>", (9.0, 8.0), dataset="mnist-5k", model="pie-mlp"),
    errors_record("vgg-tune", "OLM", (90.0, 20.0), dataset="cifar10-tune"),
    *seeds_of("cost", "plain", (9.0,)),
    *(
        errors_record(f"imagenet-{name}", "OLM", (60.0, 45.0), top5=(40.0, 20.0), model=model, dataset="imagenet")
        for name, model in (("alexnet", "alexnet"), ("resnet34", "resnet34"))
    ),
    *seeds_of("cost-synthetic", "plain", (9.0,), dataset="cifar10-synthetic"),
]


def write_records(folder: Path) -> Path:
    for record in RECORDS:
        write_record(folder / record.run.experiment, record)
    return folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of all of ``RECORDS``, written once."""
    folder = tmp_path_factory.mktemp("overview")
    write_all(write_records(folder / "results"), folder / "out")
    return folder


def test_every_experiment_with_records_has_a_section_and_the_paper_s_others_dashes(written: Path):
    text = (written / "out" / "report.md").read_text()
    sections = [line.removeprefix("## ").split(":")[0] for line in text.splitlines() if line.startswith("## ")]
    assert sections == [
        "omdsm", "pie-tune", "pie-groups", "pie-5k", "pie-batchnorm", "pie-adam", "vgg-tune", "vgg", "vgg-5k",
        "inception", "inception-cited-order", "wrn", "imagenet", "imagenet-colour", "imagenet-steps", "cost",
        "cost-synthetic", "Statements without a run",
    ]  # fmt: skip
    assert "`orthonorm-paper run wrn`, `orthonorm-paper run wrn-shortcuts`" in text
    for name in ("omdsm", "pie-tune", "pie-groups", "pie-batchnorm", "pie-adam", "vgg", "inception", "wrn"):
        assert f"– not run: `orthonorm-paper run {name}`" in text
    assert "| OLM | 3.73 ± 0.12 | – | 18.76 ± 0.40 | – |".replace("OLM", "WRN-28-10 OLM", 1) in text
    ours = "20.00 (1 seed, learning rate 0.1)"
    assert f"| OLM | 20.43 | {ours} | 9.83 | – | 9.68 | {ours} | 9.45 | – |" in text


def test_the_page_of_everything_is_one_file_with_every_picture(written: Path):
    text = (written / "out" / "report.html").read_text()
    found = check_self_contained(text)
    assert len(found.attributes("src")) == 3
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert len([tag for tag, _, _ in found.elements if tag == "table"]) >= 15


def test_each_experiment_has_its_own_report_beside_its_pictures(written: Path):
    found = {str(path.relative_to(written / "out")) for path in (written / "out").rglob("*") if path.is_file()}
    assert found == {
        "report.md", "report.html",
        *(f"{name}/{file}" for name in ("vgg-5k", "pie-5k", "imagenet")
          for file in ("report.md", "errors.png", "errors.svg")),
        "vgg-tune/report.md", "cost/report.md", "cost-synthetic/report.md",
    }  # fmt: skip
    for line in (written / "out" / "report.md").read_text().splitlines():
        if line.startswith("!["):
            assert (written / "out" / line.split("](")[1].removesuffix(")")).is_file()


def test_the_same_records_give_the_same_bytes(written: Path, tmp_path: Path):
    for record in reversed(RECORDS):
        later = changed(record, started="2027-01-01T00:00:00+00:00")
        write_record(tmp_path / "results" / record.run.experiment, later)
    write_all(tmp_path / "results", tmp_path / "out")
    files = sorted(path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert len(files) == 14
    for path in files:
        assert (tmp_path / "out" / path).read_bytes() == (written / "out" / path).read_bytes(), path


def test_one_experiment_of_a_shared_table_has_dashes_for_the_others(written: Path, tmp_path: Path):
    markdown, *pictures, html = write_report("imagenet-alexnet", written / "results" / "imagenet-alexnet", tmp_path)
    assert (
        "| OLM | 20.43 | 20.00 (1 seed, learning rate 0.1) | 9.83 | – | 9.68 | – | 9.45 | – |" in markdown.read_text()
    )
    assert [path.name for path in pictures] == ["errors.png", "errors.svg"]
    assert check_self_contained(html.read_text()).text["title"] == [
        "imagenet-alexnet: four networks for ImageNet (Table 4)"
    ]


def test_the_reports_are_those_of_the_experiments():
    found = report_names()
    assert len(found) == len(set(found))
    assert {"vgg", "vgg-5k", "vgg-synthetic", "pie-tune-synthetic", "imagenet-resnet34", "cost", "demo"} <= set(found)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(build_app(), list(arguments))


def test_one_command_writes_everything(written: Path, tmp_path: Path):
    shutil.copytree(written / "results" / "cost", tmp_path / "cost")
    result = call("report", "--results", str(tmp_path))
    assert result.exit_code == 0, result.output
    names = [line.removeprefix("written: ") for line in result.output.splitlines()]
    assert names == [str(tmp_path / "report" / name) for name in ("report.md", "report.html", "cost/report.md")]


def test_a_folder_without_records_says_what_to_do(tmp_path: Path):
    with pytest.raises(UserError, match="orthonorm-paper run NAME"):
        write_all(tmp_path, tmp_path / "out")


def test_a_record_in_another_experiment_s_folder_is_named(tmp_path: Path):
    write_record(tmp_path / "vgg", RECORDS[0])
    with pytest.raises(UserError, match="vgg holds records of vgg-5k, not of vgg"):
        write_all(tmp_path, tmp_path / "out")
    assert len(read_folder(tmp_path / "vgg")) == 1


def test_a_statement_without_a_run_names_the_commands_that_are_missing():
    def commands(*experiments: str) -> list[str]:
        text = overview([], [errors_record(name, "OLM", (5.0,)) for name in experiments])
        return re.findall(r"`orthonorm-paper run ([a-z0-9-]+)`", text)

    entries = paper_numbers()["without_run"]
    assert commands() == [name for entry in entries for name in entry["experiments"]]
    assert commands("wrn", "imagenet-alexnet") == ["imagenet-alexnet-steps", "omdsm"]
    assert all(name in EXPERIMENTS for name in commands())
    assert commands(*(name for entry in entries for name in entry["experiments"])) == []


def test_an_edge_has_the_reason_for_which_it_is_listed():
    listed = errors_record("demo", "OLM-balanced", (5.0,), model="mlp", dataset="mnist-5k", lr=0.1)
    worse = errors_record("demo", "OLM-balanced", (5.0,), train=(6.0,), model="mlp", dataset="mnist-5k", lr=0.5)
    other = [errors_record("vgg", "WN", (5.0,), train=(loss,), lr=lr) for lr, loss in ((0.1, 5.0), (0.5, 6.0))]
    rows = [line.strip("| ").split(" | ") for line in overview([], [listed, worse, *other]).splitlines()]
    why = {row[0]: row[-1] for row in rows if len(row) == 7 and row[2] in ("OLM-balanced", "WN")}
    assert set(why) == {"demo", "vgg"}
    assert why["demo"].startswith("the demo")
    assert why["vgg"] == DASH
