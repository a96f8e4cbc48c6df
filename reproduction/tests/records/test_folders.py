"""The records of an experiment in a folder, in a packed file, or in both."""

import dataclasses
import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner

from orthonorm_paper.cli.app import build_app
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.files import Record, RecordError, same, write_record
from orthonorm_paper.records.folders import find_record, pack, packed_path, read_folder, recorded_ids
from orthonorm_paper.records.run import Run
from orthonorm_paper.training.execute import Settings, execute
from paper_support.recorded import changed, record, small_set


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Records in no order."""
    for one in reversed(small_set()):
        write_record(tmp_path / "omdsm-5k", one)
    return tmp_path / "omdsm-5k"


def emptied(folder: Path) -> None:
    for path in folder.glob("*.jsonl"):
        path.unlink()


def with_clock(one: Record) -> Record:
    return changed(one, started="2027-02-02T00:00:00+00:00")


def with_loss(one: Record) -> Record:
    return dataclasses.replace(one, epochs=(one.epochs[0].model_copy(update={"train_loss": 0.125}), *one.epochs[1:]))


def test_a_packed_file_is_the_files_of_the_folder_behind_each_other(folder: Path):
    files = sorted(folder.iterdir())
    assert pack(folder) == folder.parent / "omdsm-5k.jsonl.gz"
    assert gzip.decompress(packed_path(folder).read_bytes()) == b"".join(file.read_bytes() for file in files)
    assert sorted(folder.iterdir()) == files


def test_packed_records_are_read_as_those_of_the_folder(folder: Path):
    before, ids = read_folder(folder), recorded_ids(folder)
    pack(folder)
    emptied(folder)
    assert read_folder(folder) == before
    assert recorded_ids(folder) == ids == {one.run.id for one in before}
    folder.rmdir()
    assert [find_record(folder, one.run) for one in before] == before
    assert find_record(folder, dataclasses.replace(before[0].run, seed=77)) is None


def test_the_same_records_give_the_same_bytes(folder: Path, tmp_path: Path):
    for one in small_set():
        write_record(tmp_path / "other", one)
    os.utime(next((tmp_path / "other").iterdir()), (0, 0))
    first, second = pack(folder).read_bytes(), pack(tmp_path / "other").read_bytes()
    assert first == second
    assert first[3:8] == bytes(5)  # of a gzip file: its flags (no name), and the time


def test_folder_and_packed_file_are_read_together(folder: Path):
    pack(folder)
    emptied(folder)
    here = with_clock(small_set()[0])
    more = record("OLM", 0.1, seed=5)
    for one in (here, more):
        write_record(folder, one)
    found = {one.run.id: one for one in read_folder(folder)}
    assert len(found) == len(small_set()) + 1
    assert found[more.run.id] == more
    assert found[here.run.id] == find_record(folder, here.run) == here
    pack(folder)
    emptied(folder)
    assert {one.run.id for one in read_folder(folder)} == found.keys()


@pytest.mark.parametrize(
    "ask", [read_folder, pack, lambda folder: find_record(folder, small_set()[0].run)], ids=["read", "pack", "find"]
)
def test_two_different_records_of_one_run_are_an_error_that_names_both(folder: Path, ask: Callable[[Path], object]):
    before = pack(folder).read_bytes()
    path = write_record(folder, with_loss(small_set()[0]))
    with pytest.raises(RecordError) as raised:
        ask(folder)
    assert str(path) in str(raised.value)
    assert str(packed_path(folder)) in str(raised.value)
    assert packed_path(folder).read_bytes() == before


def test_a_file_with_the_record_of_another_run_is_named(folder: Path):
    mine, other = small_set()[:2]
    path = write_record(folder, other).rename(folder / f"{mine.run.id}.jsonl")
    with pytest.raises(RecordError, match="holds the record of another run") as raised:
        find_record(folder, mine.run)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize(
    "broken",
    [lambda b: b[: len(b) // 2], lambda b: b[:40] + b"xx" + b[42:], lambda _: b"plain"],
    ids=["cut", "changed", "plain"],
)
def test_a_broken_packed_file_is_named(folder: Path, broken: Callable[[bytes], bytes]):
    path = pack(folder)
    path.write_bytes(broken(path.read_bytes()))
    with pytest.raises(RecordError, match=r"omdsm-5k\.jsonl\.gz"):
        read_folder(folder)


@pytest.mark.parametrize("lines", [slice(1, None), slice(0, -1), slice(0, 2)], ids=["no header", "no end", "cut"])
def test_a_packed_file_with_a_part_of_a_record_is_refused(folder: Path, lines: slice):
    text = gzip.decompress(pack(folder).read_bytes()).splitlines(keepends=True)
    packed_path(folder).write_bytes(gzip.compress(b"".join(text[lines])))
    with pytest.raises(RecordError, match=r"omdsm-5k\.jsonl\.gz"):
        read_folder(folder)


def test_a_packed_file_is_there_whole_or_not_at_all(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def killed(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", killed)
        with pytest.raises(UserError, match=r"omdsm-5k\.jsonl\.gz"):
            pack(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["omdsm-5k"]


def test_a_folder_without_records_is_not_packed(tmp_path: Path):
    with pytest.raises(RecordError, match="nothing"):
        pack(tmp_path / "nothing")


def test_a_run_that_is_packed_is_not_run_again(tiny: Callable[..., Run], tmp_path: Path):
    run, settings = tiny(), Settings(device="cpu")
    first = execute(run, tmp_path / "tests", settings)
    pack(tmp_path / "tests")
    emptied(tmp_path / "tests")
    second = execute(run, tmp_path / "tests", settings)
    assert second.lines() == first.lines()
    assert same(first, second)
    assert list((tmp_path / "tests").glob("*.jsonl")) == []


def test_the_command_packs_and_the_report_reads_it(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Figure, "savefig", lambda _, path, **__: path.write_bytes(b""))

    def call(*arguments: str) -> None:
        result = CliRunner().invoke(build_app(), [*arguments, "omdsm-5k", "--results", str(tmp_path)])
        assert result.exit_code == 0, result.output

    call("report")
    before = (folder / "report" / "report.md").read_bytes()
    call("pack")
    emptied(folder)
    (folder / "report" / "report.md").unlink()
    call("report")
    assert (folder / "report" / "report.md").read_bytes() == before
