"""The reports in the documentation are what the committed records give, byte for byte but for the pictures."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from orthonorm_paper.cli.app import build_app
from paper_support.html_checks import check_self_contained

DOCS = Path(__file__).parents[3] / "docs"
COMMITTED = DOCS / "reproduction"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the one command that makes the folder gives now."""
    out = tmp_path_factory.mktemp("reproduction")
    result = CliRunner().invoke(build_app(), ["report", "--results", str(DOCS / "records"), "--out", str(out)])
    assert result.exit_code == 0, result.output
    return out


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_committed_folder_is_what_one_command_writes(written: Path):
    assert files(COMMITTED) == sorted([*files(written), "README.md"])


@pytest.mark.parametrize("name", sorted(name for name in files(COMMITTED) if name.endswith("report.md")))
def test_the_committed_report_is_that_of_the_committed_records(name: str, written: Path):
    assert (written / name).read_bytes() == (COMMITTED / name).read_bytes()


def test_the_committed_page_is_that_of_the_committed_records(written: Path):
    # Another version of matplotlib gives other pictures of the same numbers.
    picture = re.compile(r'src="data:image/png;base64,[^"]+"')
    now, committed = ((folder / "report.html").read_text() for folder in (written, COMMITTED))
    assert picture.sub("", now) == picture.sub("", committed)
    shown = len(check_self_contained(committed).attributes("src"))
    assert shown == len(picture.findall(committed)) == sum(name.endswith(".png") for name in files(COMMITTED))
