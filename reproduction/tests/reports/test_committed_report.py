"""The reports in the documentation are what the committed records give, byte for byte but for the pictures."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from orthonorm_paper.cli.app import build_app
from orthonorm_paper.records.folders import pack, read_folder
from orthonorm_paper.records.run import Run
from paper_support.html_checks import check_self_contained

ROOT = Path(__file__).parents[3]
COMMITTED = ROOT / "docs" / "reproduction"
RECORDS = ROOT / "reproduction" / "records"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the one command that makes the folder gives now."""
    out = tmp_path_factory.mktemp("reproduction")
    with pytest.MonkeyPatch.context() as patch:
        # Pictures are not compared: another version of matplotlib gives others of the same numbers.
        patch.setattr(Figure, "savefig", lambda _, path, **__: path.write_bytes(b""))
        result = CliRunner().invoke(build_app(), ["report", "--results", str(RECORDS), "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out


def files(folder: Path) -> list[str]:
    """What is committed of a folder of reports: pages and vector graphics can be made again, and are not."""
    found = [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".html", ".svg")]
    return sorted(str(path.relative_to(folder)) for path in found)


def test_the_committed_folder_is_what_one_command_writes(written: Path):
    # The pages that people write stand beside what the command writes.
    assert files(COMMITTED) == sorted([*files(written), "README.md", "released-code.md", "settings.md"])


@pytest.mark.parametrize("name", sorted(name for name in files(COMMITTED) if name.endswith("report.md")))
def test_the_committed_report_is_that_of_the_committed_records(name: str, written: Path):
    assert (written / name).read_bytes() == (COMMITTED / name).read_bytes()


def test_the_page_shows_every_committed_picture(written: Path):
    shown = check_self_contained((written / "report.html").read_text()).attributes("src")
    assert len(shown) == sum(name.endswith(".png") for name in files(COMMITTED))


@pytest.mark.parametrize("path", sorted(RECORDS.iterdir()), ids=lambda path: path.name)
def test_the_id_of_each_committed_run_is_that_of_its_description(path: Path):
    headers = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines() if b'"header"' in line]
    assert [Run.from_json(header["run"]).id for header in headers] == [header["id"] for header in headers]
    assert headers


def test_all_committed_runs_are_there():
    assert sum(len(read_folder(path.with_name(path.name.partition(".")[0]))) for path in RECORDS.iterdir()) == 2361


def test_packed_again_the_committed_records_are_the_same(tmp_path: Path):
    copy = shutil.copy(RECORDS / "vgg-5k.jsonl.gz", tmp_path)
    pack(tmp_path / "vgg-5k")
    assert gzip.decompress(Path(copy).read_bytes()) == gzip.decompress((RECORDS / "vgg-5k.jsonl.gz").read_bytes())
