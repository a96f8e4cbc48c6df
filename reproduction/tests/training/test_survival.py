"""A run that is killed, interrupted, out of room, or handed damaged files: equal records, or an error with its cure."""

import contextlib
import dataclasses
import errno
import logging
import os
import random
import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orthonorm_paper import experiments
from orthonorm_paper.cli import app as cli
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.experiments import Experiment
from orthonorm_paper.records.files import (
    Record,
    RecordError,
    read_record,
    record_path,
    same,
    work_path,
    write_record,
)
from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.run import Run
from orthonorm_paper.reports.publish import write_report
from orthonorm_paper.training.checkpoint_file import CheckpointFile, begun, check_whole
from orthonorm_paper.training.execute import execute
from orthonorm_paper.training.recorder import Recorder
from orthonorm_paper.training.settings import Settings
from orthonorm_paper.training.sweep import sweep
from paper_support.disk_states import watched
from paper_support.recorded import changed, demo_set

MakeRun = Callable[..., Run]
# A checkpoint after each step.
CPU = Settings(device="cpu", checkpoint_seconds=0.0)
FIELDS: dict[str, Any] = {
    "model_args": {"hidden_layers": 2, "width": 12, "dropout": 0.3},
    "momentum": 0.9,
    "method": "OLM",
    "epochs": 2,
}


@pytest.fixture
def run(tiny: MakeRun) -> Run:
    """Six steps in two epochs, all of whose randomness a continued run has to take up."""
    return tiny(**FIELDS)


@pytest.fixture
def whole(run: Run, tmp_path: Path) -> Record:
    """The record of the run that nothing disturbs."""
    return execute(run, tmp_path / "whole", CPU)


def left_in(folder: Path) -> set[str]:
    """What lies in a results folder, locks left out."""
    return {path.suffix for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_a_kill_at_any_moment_of_writing_leaves_what_ends_in_the_same_record(run: Run, whole: Record, tmp_path: Path):
    with watched(tmp_path / "cut", tmp_path / "states") as states:
        execute(run, tmp_path / "cut", CPU)
    # Five checkpoints and the record: half written, written, renamed; and the checkpoint removed.
    assert len(states.moments) == 5 * 3 + 3 + 1
    resumed = []
    for moment in states.moments[3:]:
        assert all(same(record, whole) for record in read_folder(moment)), moment.name
        record = execute(run, moment, CPU)
        assert same(record, whole), moment.name
        assert left_in(moment) == {".jsonl"}, moment.name
        resumed.append(record.end.resumed)
    # From the first checkpoint on, each continues; what had its record is read.
    assert resumed == [1] * 14 + [0, 0]


@contextlib.contextmanager
def no_room_beyond(size: int) -> Iterator[None]:
    """No file of this process may grow beyond so many bytes: the system refuses, as where a disk is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextlib.contextmanager
def full_at(function: str, call: int) -> Iterator[None]:
    """The disk is full at one call of ``os.replace`` or ``os.fsync``."""
    original, count = getattr(os, function), 0

    def refuse(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if count == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, function, refuse)
        yield


# Where there is no room, the file that the error names, and how many checkpoints there are then.
FULL: list[Any] = [
    pytest.param(lambda: no_room_beyond(100), ".jsonl.part", 0, id="the record's first line"),
    pytest.param(lambda: no_room_beyond(4000), ".ckpt", 0, id="the first checkpoint"),
    pytest.param(lambda: full_at("fsync", 3), ".ckpt", 2, id="a later checkpoint"),
    pytest.param(lambda: full_at("replace", 3), ".ckpt", 2, id="its new name"),
    pytest.param(lambda: full_at("fsync", 6), ".jsonl", 5, id="the whole record"),
    pytest.param(lambda: full_at("replace", 6), ".jsonl", 5, id="the record's name"),
]


@pytest.mark.parametrize(("full", "suffix", "checkpoints"), FULL)
def test_a_full_disk_is_an_error_that_names_the_file_and_the_run_goes_on_with_room(
    run: Run, whole: Record, tmp_path: Path, full: Callable[[], Any], suffix: str, checkpoints: int
):
    folder = tmp_path / "full"
    with full(), pytest.raises(UserError) as raised:
        execute(run, folder, CPU)
    assert f"{run.id}{suffix} cannot be written (" in str(raised.value)
    assert "make room or give another results folder" in str(raised.value)
    assert read_folder(folder) == []
    record = execute(run, folder, CPU)
    assert same(record, whole)
    assert record.end.resumed == (checkpoints > 0)
    assert left_in(folder) == {".jsonl"}


def test_a_full_disk_takes_no_record_from_another_machine_in_part(whole: Record, tmp_path: Path):
    with no_room_beyond(500), pytest.raises(UserError, match=r"\.jsonl cannot be written \(File too large\)"):
        write_record(tmp_path / "here", whole)
    assert list((tmp_path / "here").iterdir()) == []


def test_a_full_disk_leaves_no_report_unsaid(tmp_path: Path):
    for record in demo_set():
        write_record(tmp_path / "records", record)
    with no_room_beyond(300), pytest.raises(UserError, match=r"/out: File too large.*--out"):
        write_report("demo", tmp_path / "records", tmp_path / "out")


def test_a_record_is_read_where_what_a_killed_process_left_cannot_be_removed(
    run: Run, whole: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_record(tmp_path, whole)
    left = work_path(tmp_path, run, ".ckpt")
    left.parent.mkdir()
    left.touch()

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    assert same(execute(run, tmp_path, CPU), whole)
    assert left.exists()


def test_a_lock_that_cannot_be_taken_is_named(run: Run, tmp_path: Path):
    work_path(tmp_path, run, ".lock").mkdir(parents=True)
    with pytest.raises(UserError, match=rf"{run.id}\.lock .*Is a directory"):
        execute(run, tmp_path, CPU)


@pytest.fixture
def heard() -> Iterator[None]:
    """Let Ctrl-C be heard, which a shell's background process ignores, and the tests with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_after(saves: int, patch: pytest.MonkeyPatch, sent: signal.Signals = signal.SIGINT) -> None:
    """Press Ctrl-C, or send another signal, once, after so many checkpoints."""
    original, count = Recorder.save, 0

    def save(self: Recorder, trainer: Any) -> None:
        nonlocal count
        original(self, trainer)
        count += 1
        if count == saves:
            signal.raise_signal(sent)

    patch.setattr(Recorder, "save", save)


@pytest.mark.usefixtures("heard")
def test_an_interrupt_ends_the_run_and_the_next_call_continues(
    run: Run, whole: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    interrupt_after(4, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        execute(run, tmp_path / "cut", CPU)
    # The next Ctrl-C is heard too.
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert read_folder(tmp_path / "cut") == []
    record = execute(run, tmp_path / "cut", CPU)
    assert same(record, whole)
    assert record.end.resumed == 1


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=lambda sent: sent.name)
def test_an_interrupted_command_says_that_it_continues(
    tiny: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals
):
    runs = [tiny(**FIELDS, seed=seed) for seed in (0, 1)]
    monkeypatch.setitem(experiments.EXPERIMENTS, "tests", Experiment("tests", "", "", lambda: runs))
    monkeypatch.chdir(tmp_path)
    command = ["run", "tests", "--device", "cpu", "--checkpoint-minutes", "0"]
    with pytest.MonkeyPatch.context() as patch:
        interrupt_after(6, patch, sent)
        ended = CliRunner().invoke(cli.build_app(), command)
    assert ended.exit_code == 130
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert "interrupted; what is recorded in results/tests is kept, and the same command continues" in ended.stderr
    assert len(read_folder(tmp_path / "results" / "tests")) == 1
    again = CliRunner().invoke(cli.build_app(), command)
    assert "2 of 2 runs recorded in results/tests: 2 completed" in again.output
    expected = sweep(runs, tmp_path / "whole", CPU)
    for record in expected:
        assert same(read_record(record_path(tmp_path / "results" / "tests", record.run)), record)


def stopped_at_four(run: Run, folder: Path) -> Path:
    """The checkpoint of a run that was stopped."""
    execute(run, folder, dataclasses.replace(CPU, stop_at_step=4))
    return work_path(folder, run, ".ckpt")


def test_a_checkpoint_with_one_changed_bit_is_never_trained_from(
    run: Run, whole: Record, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    checkpoint = stopped_at_four(run, tmp_path / "cut")
    content, numbers, changed = checkpoint.read_bytes(), random.Random(3), tmp_path / "changed"
    check_whole(checkpoint)
    for _ in range(200):
        at = numbers.randrange(len(content))
        changed.write_bytes(content[:at] + bytes([content[at] ^ 1 << numbers.randrange(8)]) + content[at + 1 :])
        with pytest.raises(ValueError, match="not a whole checkpoint"):
            check_whole(changed)
    shutil.copy(changed, checkpoint)
    with caplog.at_level(logging.ERROR):
        record = execute(run, tmp_path / "cut", CPU)
    assert same(record, whole)
    assert record.end.resumed == 0


class Bomb:
    """Runs code where it is unpickled."""

    went_off = False

    def __reduce__(self) -> tuple[Any, ...]:
        return setattr, (Bomb, "went_off", True)


def save(content: Any, path: Path) -> None:
    path.unlink()
    CheckpointFile().save_checkpoint(content, path)


DAMAGED: list[Any] = [
    pytest.param(lambda path: path.write_bytes(b""), "not a whole checkpoint", id="empty"),
    pytest.param(lambda path: path.write_text("no checkpoint"), "not a whole checkpoint", id="text"),
    pytest.param(lambda path: save({"record": Bomb()}, path), "it holds more than numbers", id="program"),
    pytest.param(lambda path: save({"record": {"lines": []}}, path), "index out of range", id="no line"),
    pytest.param(lambda path: save({"record": {"lines": ["3"]}}, path), "is not usable", id="a number"),
    pytest.param(lambda path: save({"record": [1, 2]}, path), "is not usable", id="a list"),
]


def test_no_checkpoint_is_not_called_unusable(whole: Record, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    assert begun(tmp_path / "none.ckpt", whole.header) is None
    assert caplog.text == ""


@pytest.mark.parametrize(("damage", "reason"), DAMAGED)
def test_a_checkpoint_that_is_none_starts_the_run_anew_and_runs_no_code(
    run: Run,
    whole: Record,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    damage: Callable[[Path], object],
    reason: str,
):
    checkpoint = stopped_at_four(run, tmp_path / "cut")
    damage(checkpoint)
    with caplog.at_level(logging.WARNING):
        record = execute(run, tmp_path / "cut", CPU)
    assert same(record, whole)
    assert record.end.resumed == 0
    assert f"{checkpoint} is not usable" in caplog.text
    assert reason in caplog.text
    # torch's own words would have the reader switch the check off.
    assert "weights_only" not in caplog.text
    assert not Bomb.went_off


def with_header(record: Record, **fields: object) -> str:
    lines = changed(record, **fields).lines()
    return "".join(line.text() + "\n" for line in lines)


def as_newer(text: str) -> str:
    return text.replace('"schema": 1', '"schema": 2')


IN_THE_WAY: list[Any] = [
    pytest.param(lambda r: as_newer(with_header(r)), "schema is 2, this version reads up to 1: upgrade", id="newer"),
    pytest.param(lambda r: with_header(r)[:-40], "no end: .* delete the file and run again", id="cut"),
    pytest.param(lambda _: "", "does not begin with a header", id="empty"),
    pytest.param(
        lambda r: with_header(r, run=dataclasses.replace(r.run, seed=5).to_json()),
        "holds the record of another run, OLM-mlp2-12-b16-lr0.1-s5-.*: move it away",
        id="another run's",
    ),
]


@pytest.mark.parametrize(("content", "message"), IN_THE_WAY)
def test_a_file_that_is_no_record_of_the_run_is_named_and_kept(
    run: Run, whole: Record, tmp_path: Path, content: Callable[[Record], str], message: str
):
    path = record_path(tmp_path / "results", run)
    path.parent.mkdir()
    path.write_text(content(whole))
    before = path.read_bytes()
    with pytest.raises(RecordError, match=message) as raised:
        sweep([run], path.parent, CPU)
    assert str(path) in str(raised.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("suffix", [".jsonl.part", ".new"])
def test_a_link_in_the_work_folder_leads_nowhere(run: Run, whole: Record, tmp_path: Path, suffix: str):
    precious = tmp_path / "precious"
    precious.write_text("kept")
    link = work_path(tmp_path / "results", run, suffix)
    link.parent.mkdir(parents=True)
    link.symlink_to(precious)
    assert same(execute(run, tmp_path / "results", CPU), whole)
    assert precious.read_text() == "kept"
