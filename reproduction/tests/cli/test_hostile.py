"""Files from strangers: records are data with types, pages show their texts as text, names stay in their folder."""

import ast
import dataclasses
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

import orthonorm_paper
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.files import Record, read_record, record_path, work_path, write_record
from orthonorm_paper.records.run import Run
from orthonorm_paper.reports.figures.losses import draw_omdsm
from orthonorm_paper.reports.publish import write_report
from paper_support.html_checks import check_self_contained
from paper_support.recorded import changed as with_header
from paper_support.recorded import demo_set, record, small_set
from paper_support.recorded_tables import as_table_1_says

WHOLE = record("OLM", 0.5)
DEEP = "[" * 100_000 + "]" * 100_000


def lines_with(place: int, text: str) -> str:
    """The lines of a record, that of a place (0 is the header, -1 the end) replaced."""
    lines = [line.text() for line in WHOLE.lines()]
    lines[place] = text
    return "".join(f"{line}\n" for line in lines)


def changed(place: int, **fields: object) -> str:
    return lines_with(place, json.dumps(WHOLE.lines()[place].to_json() | fields))


def raw(place: int, field: str, text: str) -> str:
    """The same with a value that Python would not write."""
    return lines_with(place, json.dumps(WHOLE.lines()[place].to_json() | {field: "@"}).replace('"@"', text))


WRONG: list[Any] = [
    pytest.param(raw(1, "train_loss", DEEP), "line 2: .*JSON", id="deeply nested"),
    pytest.param(raw(1, "train_loss", "NaN"), "line 2: epoch.train_loss .* got nan", id="NaN"),
    pytest.param(raw(1, "train_loss", "-Infinity"), "line 2: epoch.train_loss .* got -inf", id="infinity"),
    pytest.param(raw(1, "train_loss", "1e999"), "line 2: .* got inf", id="a float past all"),
    pytest.param(raw(1, "test_top5_error", "NaN"), "line 2: epoch.test_top5_error .* got nan", id="another error"),
    pytest.param(raw(1, "step", "9" * 400), "line 2: epoch.step .* got 999", id="a count past all"),
    pytest.param(raw(1, "step", "9" * 5000), "line 2: ", id="more digits than Python reads"),
    pytest.param(changed(1, train_loss="0.1"), "line 2: epoch.train_loss .* got '0.1'", id="text"),
    pytest.param(changed(1, train_loss=True), "line 2: epoch.train_loss .* got True", id="true"),
    pytest.param(changed(1, test_top5_error=[1]), r"line 2: epoch.test_top5_error .* got \[1\]", id="a list"),
    pytest.param(changed(1, seconds={}), "line 2: epoch.seconds .* got {}", id="an object"),
    pytest.param(changed(1, step=-1), "line 2: epoch.step .* got -1", id="less than nothing"),
    pytest.param(changed(1, step=1.5), "line 2: epoch.step .* got 1.5", id="a part of a step"),
    pytest.param(changed(1, kind=[1]), "line 2: ", id="a kind that is a list"),
    pytest.param(changed(0, versions="2"), "line 1: header.versions .* got '2'", id="versions"),
    pytest.param(changed(0, versions={"torch": 2}), "header.versions.torch .* got 2", id="a version"),
    pytest.param(changed(0, data="mnist"), "header.data .* got 'mnist'", id="data"),
    pytest.param(changed(0, device=None), "header.device .* got None", id="device"),
    pytest.param(changed(0, devices=["1", 2]), "header.devices.1 .* got 2", id="devices"),
    pytest.param(changed(0, devices=[]), r"header.devices .* got \[\]", id="no devices"),
    pytest.param(changed(0, steps_per_epoch="15"), "header.steps_per_epoch .* got '15'", id="steps"),
    pytest.param(changed(0, run=[]), r"header.run .* got \[\]", id="run"),
    pytest.param(changed(-1, step=None), "end.step .* got None", id="end"),
    pytest.param(changed(-1, reason=5), "end.reason .* got 5", id="reason"),
    pytest.param(
        lines_with(0, json.dumps({k: v for k, v in WHOLE.header.to_json().items() if k not in ("data", "device")})),
        "header.data is missing. header.device is missing. .*Delete the file and run again",
        id="a header without",
    ),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_a_record_of_wrong_types_is_an_error_that_names_file_and_field(text: str, message: str, tmp_path: Path):
    path = tmp_path / "strange.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as raised:
        read_record(path)
    assert len(str(raised.value)) < 400


def test_what_the_broken_records_were_made_of_is_whole(tmp_path: Path):
    path = tmp_path / "whole.jsonl"
    path.write_text(changed(1, test_top5_error=3, train_loss=None))
    assert read_record(path).epochs[0].to_json()["test_top5_error"] == 3


SCRIPT = '<script>alert("x")</script>'
HOSTILE = {
    "script": SCRIPT,
    "picture": "![x](https://example.org/x.png)",
    "link": "[x](javascript:alert(1)) <img src=x onerror=alert(1)>",
    "row": "a | b # heading *c* &lt;b&gt;",
    "formula": "$\\frac{",
}


def poisoned(original: Record, text: str) -> Record:
    """A record all of whose free texts are hostile."""
    fields = {"data": {"description": text, "digest": text}, "versions": {text: text}, "device": text, "commit": text}
    more = {"devices": [text, text], "memory_format": text, "id": text, "started": text}
    reason = original.end.model_copy(update={"reason": text})
    return dataclasses.replace(with_header(original, **fields, **more), end=reason)


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures that are made and not drawn, which takes seconds."""
    monkeypatch.setattr(Figure, "savefig", lambda _, path, **__: path.write_bytes(b""))


def texts_of(name: str, records: list[Record], folder: Path) -> str:
    """What a report's page shows, once it was found to be harmless."""
    for one in records:
        write_record(folder / "records", one)
    *_, page = write_report(name, folder / "records", folder / "out")
    found = check_self_contained(page.read_text())
    assert "img" in {tag for tag, _, _ in found.elements}
    assert [link for link in found.attributes("href") if not link.startswith("#")] == []
    return " ".join(" ".join("".join(texts) for texts in found.text.values()).split())


REPORTS = {"omdsm-5k": small_set, "demo": demo_set, "vgg": partial(as_table_1_says, count=1)}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("name", REPORTS)
def test_texts_of_a_record_are_text_on_the_page(name: str, text: str, tmp_path: Path):
    shown = texts_of(name, [poisoned(one, text) for one in REPORTS[name]()], tmp_path)
    # The description of the data, the version and the device.
    assert shown.count(text) >= 3


def test_texts_of_a_record_are_no_formulas_in_a_picture(tmp_path: Path):
    records = [poisoned(record("OLM", rate, seed=seed), "$\\frac{") for rate in (0.1, 0.5) for seed in (0, 1)]
    named = [dataclasses.replace(one.run, method="$\\frac{").to_json() for one in records]
    records += [with_header(one, run=run) for one, run in zip(records, named, strict=True)]
    (picture, _) = draw_omdsm(records, tmp_path)
    assert picture.stat().st_size > 5000


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("name", ["omdsm-5k", "demo"])
def test_a_method_that_is_a_program_is_a_label(name: str, tmp_path: Path):
    records = []
    for one in REPORTS[name]():
        method = SCRIPT if one.run.method == "plain-he" else one.run.method
        run = dataclasses.replace(one.run, method=method)
        records.append(with_header(one, run=run.to_json()))
    texts_of(name, records, tmp_path)
    assert "&lt;script&gt;alert" in (tmp_path / "out" / "report.html").read_text()


NAMES = ["../../outside", "/etc/passwd", "..", "a/b", "a\\b", "C:evil", "~root", "-rf", "x" * 90, "é"]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_stays_in_its_folder(name: str, tmp_path: Path):
    run = dataclasses.replace(WHOLE.run, method=name, model=name)
    for path, folder in (
        (record_path(tmp_path, run), tmp_path),
        (work_path(tmp_path, run, ".ckpt"), tmp_path / ".work"),
    ):
        assert path.resolve().parent == folder.resolve()
        assert set(path.name) <= {*"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.+_-"}
    written = write_record(tmp_path, with_header(WHOLE, run=run.to_json()))
    assert written.is_file()
    assert [path.name for path in tmp_path.iterdir()] == [written.name]


@pytest.mark.parametrize(
    "name",
    ["a\0b", "a\nb", "\x1b[31mred", "\u202eabc", "x" * 101, ""],
    ids=["NUL", "newline", "escape", "backwards", "long", "empty"],
)
def test_a_name_that_cannot_be_shown_is_refused(name: str):
    data = WHOLE.run.to_json()
    for field in ("experiment", "dataset", "model", "method"):
        with pytest.raises(UserError, match=f"{field} .* character.*; got"):
            Run.from_json(data | {field: name})


def loads(tree: ast.AST) -> list[ast.Call]:
    """Calls of a function or method called `load` or `loads`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in ("load", "loads")]


def test_no_file_is_read_by_running_it():
    package = Path(str(orthonorm_paper.__file__)).parent
    found: dict[str, set[str]] = {}
    for path in package.rglob("*.py"):
        for call in loads(ast.parse(path.read_text())):
            name = ast.unparse(call.func)
            safe = any(key.arg == "weights_only" and ast.unparse(key.value) == "True" for key in call.keywords)
            if name.startswith(("torch.", "pickle.", "joblib.", "np.")) and not safe:
                found.setdefault(str(path.relative_to(package)), set()).add(name)
    # What the processes of one run say to each other, in a folder that only they can read.
    assert found == {"training/processes/launch.py": {"pickle.loads"}}
