"""The report in the documentation is what the committed records give, byte for byte."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from orthonorm.cli import build_app

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", sorted(path.name for path in (DOCS / "reproduction").iterdir() if path.is_dir()))
def test_the_committed_report_is_that_of_the_committed_records(name: str, tmp_path: Path):
    arguments = ["report", name, "--results", str(DOCS / "records"), "--out", str(tmp_path)]
    result = CliRunner().invoke(build_app(), arguments)
    assert result.exit_code == 0, result.output
    committed = DOCS / "reproduction" / name
    assert (tmp_path / "report.md").read_bytes() == (committed / "report.md").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(path.name for path in committed.iterdir())
