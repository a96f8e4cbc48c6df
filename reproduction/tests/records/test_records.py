"""Records: strict JSON, whole or absent, equal outside the clock fields."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from orthonorm_paper.records.files import (
    CLOCK_FIELDS,
    End,
    Epoch,
    Line,
    Record,
    RecordError,
    RecordWriter,
    read_record,
    record_path,
    same,
    work_path,
    write_record,
)
from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.lines import finite, parse_line, parts_of_record
from orthonorm_paper.records.run import Run

RUN = Run(experiment="tests", dataset="tiny", model="mlp", method="plain", lr=0.1, epochs=2, batch_size=8)
HEADER = {
    "kind": "header",
    "schema": 1,
    "id": RUN.id,
    "run": RUN.to_json(),
    "data": {"description": "none", "digest": "none"},
    "steps_per_epoch": 2,
    "parameters": 1,
    "versions": {"python": "3.11.0"},
    "device": "none",
    "started": "now",
    "threads": 1,
}
UNKNOWN = {"train_error": None, "test_loss": None}
END = {"kind": "end", "outcome": "completed", "reason": None, "step": 4, "finished": "now", "resumed": 0}


def epoch(number: int, loss: float = 1.5) -> dict[str, Any]:
    line = {"kind": "epoch", "epoch": number, "step": 2 * number, "lr": 0.1}
    return line | {"train_loss": loss, "test_error": 10.0, "orthogonality_error": 1e-8, "seconds": 0.1}


def as_lines(*lines: dict[str, Any]) -> list[Line]:
    return [parse_line(Path(), number, json.dumps(line)) for number, line in enumerate(lines)]


def write(folder: Path, *epochs: dict[str, Any], end: dict[str, Any] | None = None) -> Path:
    writer = RecordWriter(folder, RUN, as_lines(HEADER))
    for line in as_lines(*epochs):
        writer.write(line)
    return writer.finish(End.model_validate(END if end is None else end))


def test_a_record_comes_back_as_it_was_written(tmp_path: Path):
    path = write(tmp_path, epoch(1), epoch(2, 0.25))
    record = read_record(path)
    assert path == tmp_path / f"{RUN.id}.jsonl"
    assert record.lines() == as_lines(HEADER, epoch(1), epoch(2, 0.25), END)
    assert [json.loads(line) for line in path.read_text().splitlines()][1] == epoch(1) | UNKNOWN
    assert record.run == RUN
    assert (record.last("train_loss"), record.seconds, record.outcome_text) == (0.25, 0.2, "completed")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_not_finite_is_null_in_the_file(tmp_path: Path, value: float):
    fields = {name: value for name, value in epoch(1).items() if name != "train_loss"}
    with pytest.raises(ValueError, match="train_loss"):
        Epoch(**fields, train_loss=value)
    writer = RecordWriter(tmp_path, RUN, as_lines(HEADER))
    writer.write(Epoch(**fields, train_loss=finite(value)))
    path = writer.finish(End(outcome="diverged", step=3, loss=finite(value)))
    lines = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
    assert lines[1]["train_loss"] is None
    assert lines[2]["loss"] is None
    assert read_record(path).outcome_text == "diverged at step 3"


def test_nothing_has_the_record_s_name_before_its_end(tmp_path: Path):
    writer = RecordWriter(tmp_path, RUN, as_lines(HEADER, epoch(1)))
    assert list(tmp_path.glob("*.jsonl")) == []
    assert work_path(tmp_path, RUN, ".jsonl.part").read_text().count("\n") == 2
    writer.finish(End.model_validate(END))
    assert len(read_folder(tmp_path)) == 1
    assert not work_path(tmp_path, RUN, ".jsonl.part").exists()


def test_a_record_from_elsewhere_is_written_whole(tmp_path: Path):
    record = read_record(write(tmp_path / "there", epoch(1)))
    path = write_record(tmp_path / "here", record)
    assert same(read_record(path), record)
    assert [p.name for p in (tmp_path / "here").iterdir()] == [f"{RUN.id}.jsonl"]


OTHERS = {"threads": 7, "seconds": 7.0, "train_loss": 7.0, "resumed": 7, "step": 7}


def changed(record: Record, where: str, field: str, value: object) -> Record:
    lines = [line.model_copy(update={field: value} if line.kind == where else {}) for line in record.lines()]
    return Record(*parts_of_record(Path(), lines))


@pytest.mark.parametrize(
    ("where", "field", "equal"),
    [
        ("header", "started", True),
        ("header", "threads", False),
        ("header", "device", False),
        ("epoch", "seconds", True),
        ("epoch", "train_loss", False),
        ("end", "finished", True),
        ("end", "resumed", True),
        ("end", "reason", False),
        ("end", "step", False),
    ],
)
def test_records_are_equal_outside_the_clock_fields_only(tmp_path: Path, where: str, field: str, equal: bool):
    record = read_record(write(tmp_path, epoch(1)))
    assert same(record, record)
    assert same(record, changed(record, where, field, OTHERS.get(field, "other"))) is equal
    assert (field in CLOCK_FIELDS) is equal


def text(*lines: dict[str, Any]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


BROKEN: list[tuple[str, str, str]] = [
    ("empty", "", "does not begin with a header"),
    ("no end", text(HEADER, epoch(1)), "has no end: the run was cut off; delete the file"),
    ("torn line", text(HEADER, epoch(1), END)[:-9] + "\n", "line 3: .*JSON"),
    ("no newline at the end", text(HEADER, epoch(1), END)[:-1], "has no end"),
    (
        "NaN",
        text(HEADER) + json.dumps(epoch(1, float("nan"))) + "\n" + text(END),
        "line 2: .* got nan",
    ),
    ("newer", text(HEADER | {"schema": 2}, END), "schema is 2, this version reads up to 1: upgrade"),
    ("no schema", text(HEADER | {"schema": None}, END), "header.schema .* got None"),
    ("foreign line", text(HEADER, {"kind": "song"}, END), "line 2: .* got {'kind': 'song'}"),
    ("list", "[1]\n", r"line 1: .* got \[1\]"),
    ("two records", text(HEADER, END, HEADER, END), "a header or an end in the middle"),
    ("gap", text(HEADER, epoch(1), epoch(3), END), r"has epochs \[1, 3\], expected 1 to 2"),
    ("outcome", text(HEADER, END | {"outcome": "won"}), "line 2: end.outcome .* got 'won'"),
    ("run", text(HEADER | {"run": {}}, END), "broken.jsonl, line 1: header.run.experiment is missing"),
    ("error in words", text(HEADER, epoch(1) | {"orthogonality_error": "no"}, END), "orthogonality_error .* got 'no'"),
]


@pytest.mark.parametrize(("content", "message"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_record_is_an_error_that_says_what_is_wrong(tmp_path: Path, content: str, message: str):
    path = tmp_path / "broken.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_record(path)


def test_a_missing_or_binary_record_is_named(tmp_path: Path):
    with pytest.raises(RecordError, match=r"absent.jsonl cannot be read: No such file"):
        read_record(tmp_path / "absent.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RecordError, match=r"binary.jsonl is not UTF-8"):
        read_record(tmp_path / "binary.jsonl")


WRITE_FOR_EVER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_records import END, RUN, epoch, write
folder = Path(sys.argv[1])
print("ready", flush=True)
while True:
    write(folder, *(epoch(i, i / 7) for i in range(1, 200)))
"""


def test_a_kill_at_any_moment_leaves_a_whole_record_or_none(tmp_path: Path):
    command = [sys.executable, "-c", WRITE_FOR_EVER, str(tmp_path), str(Path(__file__).parent)]
    moments = random.Random(7)
    kills = 4
    for _ in range(kills):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0.001, 0.05))
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
        process.stdout.close()
        for record in read_folder(tmp_path):
            assert len(record.epochs) == 199
            assert record.outcome == "completed"
    assert record_path(tmp_path, RUN).exists()
