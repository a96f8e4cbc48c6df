"""The command line: its commands through typer's runner, its mistakes through a process."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from orthonorm_paper import experiments
from orthonorm_paper.cli import app as cli
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.experiments import Experiment
from orthonorm_paper.records.folders import read_folder

REPORTS = Path(__file__).parents[1] / "reports"
SMALL = ("tests", "a small experiment", "synthetic patterns, 3 epochs")


@pytest.fixture
def small(tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Put an experiment of four tiny runs into the table, and work in an empty folder."""
    runs = [tiny(method=method, seed=seed) for method in ("plain", "plain-he") for seed in (0, 1)]
    monkeypatch.setitem(experiments.EXPERIMENTS, "tests", Experiment(*SMALL, lambda: runs))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli.build_app(), list(arguments), catch_exceptions=False)


def test_help_names_every_command():
    result = call("--help")
    assert result.exit_code == 0
    for command in ("demo", "list", "run", "report", "pack"):
        assert f" {command} " in result.output


@pytest.mark.parametrize("command", ["demo", "list", "run", "report"])
def test_help_of_a_command_explains_every_option(command: str):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert "--help" in result.output
    assert result.output.count("--") >= 3


def test_run_list_and_again(small: Path):
    first = call("run", "tests", "--only", "seed=0", "--device", "cpu")
    assert "2 of 2 runs recorded in results/tests: 2 completed" in first.output
    assert {r.run.seed for r in read_folder(small / "results" / "tests")} == {0}
    before = {p.name: p.stat().st_mtime_ns for p in (small / "results" / "tests").glob("*.jsonl")}
    second = call("run", "tests", "--only", "seed=0", "--device", "cpu")
    assert "all 2 runs are recorded in results/tests" in second.output
    assert {p.name: p.stat().st_mtime_ns for p in (small / "results" / "tests").glob("*.jsonl")} == before
    lines = call("list", "tests", "--verbose").output.splitlines()[-4:]
    assert [line.split("  ")[1] for line in lines] == ["completed", "not run"] * 2


def test_a_dry_run_prints_what_would_begin_and_the_seconds_of_what_is_recorded(small: Path):
    before = call("run", "tests", "--dry-run").output
    assert "4 runs of 4 would begin, in results/tests" in before
    assert before.count("time unknown") == 4
    call("run", "tests", "--only", "seed=0", "--device", "cpu")
    recorded = {record.run.method: record.seconds for record in read_folder(small / "results" / "tests")}
    after = call("run", "tests", "--dry-run").output
    assert "2 runs of 4 would begin" in after
    assert f"about {sum(recorded.values()):.0f} s, from recorded seconds, 1 run at a time" in after
    assert len(read_folder(small / "results" / "tests")) == 2


def test_a_variation_runs_and_reports_under_its_own_name(small: Path):
    first = call("run", "tests", "--learning-rates", "0.05", "--epochs", "2", "--seeds", "1", "--device", "cpu")
    name = "tests-lr0.05-epochs2-seeds1"
    assert f"2 of 2 runs recorded in results/{name}: 2 completed" in first.output
    assert {(r.run.experiment, r.run.lr, r.run.epochs) for r in read_folder(small / "results" / name)} == {
        (name, 0.05, 2)
    }


def test_the_command_that_chooses_a_rate_repeats_the_data_and_the_methods(tmp_path: Path):
    arguments = ["--only", "method=OLM", "--only", "seed=3", "--data", "my data", "--results", str(tmp_path)]
    with pytest.raises(UserError) as stop:
        call("run", "vgg", *arguments)
    command = str(stop.value).rpartition("(orthonorm-paper ")[2].removesuffix(")")
    assert shlex.split(command) == ["run", "vgg-tune", "--only", "method=OLM", "--data", "my data"]


def test_synthetic_data_is_another_experiment_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    only = [f"--only={field}" for field in ("method=plain", "lr=0.1", "optimizer=sgd", "batch_norm=true")]
    first = call("run", "pie-tune", "--data", "synthetic", "--device", "cpu", *only)
    assert "1 of 1 run recorded in results/pie-tune-synthetic: 1 completed" in first.output
    assert "test error in % on pie-synthetic, pie-mlp batch_norm True, batch 256: plain" in first.output
    assert first.output.splitlines()[-1] == "next: orthonorm-paper report pie-tune-synthetic"
    (record,) = read_folder(tmp_path / "results" / "pie-tune-synthetic")
    assert (record.run.experiment, record.run.dataset) == ("pie-tune-synthetic", "pie-synthetic")
    assert "synthetic patterns" in record.header.data.description
    second = call("run", "pie-tune-synthetic", "--device", "cpu", *only)
    assert "the 1 run is recorded in results/pie-tune-synthetic" in second.output


def test_minutes_stop_and_a_later_call_continues(small: Path):
    stopped = call("run", "tests", "--minutes", "0", "--device", "cpu", "--only", "method=plain", "--data", "my data")
    hint = stopped.output.splitlines()[-1].removeprefix("next: orthonorm-paper ")
    assert shlex.split(hint) == ["run", "tests", "--data", "my data", "--only", "method=plain"]
    stopped = call("run", "tests", "--minutes", "0", "--device", "cpu")
    assert "0 of 4 runs recorded" in stopped.output
    assert "4 not begun" in stopped.output
    assert "4 of 4 runs recorded in results/tests: 4 completed" in call("run", "tests", "--device", "cpu").output


def test_devices_share_a_run_and_precision_is_another_experiment(tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    runs = [tiny(dataset="mnist-synthetic", batch_size=1024, epochs=1)]
    monkeypatch.setitem(experiments.EXPERIMENTS, "tests", Experiment(*SMALL, lambda: runs))
    monkeypatch.chdir(tmp_path)
    shared = call("run", "tests", "--device", "cpu", "--devices", "2", "--strategy", "ddp", "--threads", "1")
    assert "1 of 1 run recorded in results/tests: 1 completed" in shared.output
    call("run", "tests", "--device", "cpu", "--precision", "bf16-mixed", "--channels-last")
    (two,) = read_folder(tmp_path / "results" / "tests")
    (half,) = read_folder(tmp_path / "results" / "tests-bf16-mixed")
    assert two.header.devices == ("2 (ddp)",)
    assert (half.run.experiment, half.run.precision) == ("tests-bf16-mixed", "bf16-mixed")
    assert half.header.memory_format == "channels_last"
    assert "memory_format" not in two.header.to_json()
    assert half.last("train_loss") == pytest.approx(two.last("train_loss"), rel=0.01)
    assert half.last("train_loss") != pytest.approx(two.last("train_loss"), rel=1e-6)


def test_list_counts_what_is_recorded(small: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "140")
    call("run", "tests", "--only", "method=plain", "--device", "cpu")
    (row,) = [line for line in call("list").output.splitlines() if "run tests" in line]
    assert row.split("  ")[0] == "orthonorm-paper run tests"
    assert row.split()[3:] == ["tiny", "2", "of", "4", "a", "small", "experiment"]


def test_report_writes_what_the_records_say(tmp_path: Path):
    out = tmp_path / "out"
    result = call("report", "omdsm-5k", "--results", str(REPORTS / "records"), "--out", str(out))
    assert result.exit_code == 0
    assert f"written: {out / 'report.md'}" in result.output
    assert (out / "report.md").read_text() == (REPORTS / "records" / "omdsm-5k.md").read_text()


def test_the_demo_shows_recorded_results_and_runs_afresh_when_told(
    tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    runs = [
        tiny(experiment="demo", method=method, lr=lr, seed=seed, epochs=2)
        for seed in (0, 1)
        for method in ("plain", "OLM-balanced")
        for lr in (0.2, 0.5)
    ]
    monkeypatch.setitem(experiments.EXPERIMENTS, "demo", Experiment("demo", "", "", lambda: runs))
    monkeypatch.setenv("COLUMNS", "140")
    arguments = ("demo", "--out", str(tmp_path), "--jobs", "1")
    first = call(*arguments)
    times = [path.stat().st_mtime_ns for path in sorted(tmp_path.glob("*.jsonl"))]
    second = call(*arguments)
    assert len(times) == 8
    assert times == [path.stat().st_mtime_ns for path in sorted(tmp_path.glob("*.jsonl"))]
    assert f"all 8 runs are recorded in {tmp_path}" in second.output
    for text in (
        "Orthogonal weights at learning rate",
        "synthetic patterns",
        "seeds 0, 1",
        "Versions: python",
        "written:",
    ):
        assert text in first.output
        assert text in second.output
    assert (tmp_path / "demo.png").stat().st_size > 5000
    assert "| OLM-balanced | 0.5 |" in (tmp_path / "demo.md").read_text()
    call(*arguments, "--fresh")
    assert times != [path.stat().st_mtime_ns for path in sorted(tmp_path.glob("*.jsonl"))]


WRONG: list[tuple[str, list[str], str]] = [
    ("experiment", ["run", "lenet"], f"experiment must be one of {', '.join(experiments.EXPERIMENTS)}; got 'lenet'"),
    ("experiment nearly", ["run", "vgg5k"], "got 'vgg5k'. Did you mean vgg-5k"),
    ("experiment far", ["run", "lenet"], "got 'lenet'. `orthonorm-paper list` shows what each is"),
    (
        "rates",
        ["run", "vgg"],
        "vgg takes its learning rates from vgg-tune: no learning rate to select: 54 runs are missing: OLM-L2-vgg",
    ),
    ("no synthetic", ["run", "demo", "--data", "synthetic"], "demo has no synthetic variant: its data is available"),
    ("selection", ["run", "demo", "--only", "lr=3"], "--only lr=3 leaves no run; lr is 0.1, 0.5"),
    ("device", ["run", "demo", "--device", "tpu"], "device should be 'auto', 'cpu' or 'cuda'; got 'tpu'"),
    ("jobs", ["run", "demo", "--jobs", "0"], "jobs must be at least 1; got 0"),
    ("minutes", ["run", "demo", "--minutes", "-1"], "minutes must be at least 0; got -1"),
    ("checkpoints", ["run", "demo", "--checkpoint-minutes", "nan"], "checkpoint-minutes must be at least 0; got nan"),
    (
        "precision",
        ["run", "demo", "--precision", "8"],
        "precision must be one of 32-true, 64-true, 16-mixed, bf16-mixed; g",
    ),
    ("jobs and devices", ["run", "demo", "--jobs", "2", "--devices", "2", "--device", "cpu"], "give one of the two"),
    ("results", ["run", "demo", "--results", "/proc/x"], "results folder /proc/x/demo cannot be written"),
    ("out", ["demo", "--out", "/proc/x"], "results folder /proc/x cannot be written"),
    ("no record", ["report", "demo", "--results", "/nowhere"], "/nowhere/demo holds no record"),
    ("list", ["list", "lenet"], f"experiment must be one of {', '.join(experiments.EXPERIMENTS)}; got 'lenet'"),
    ("data", ["run", "omdsm", "--only", "seed=0", "--data", "."], "train-images-idx3-ubyte"),
]


@pytest.mark.parametrize(("arguments", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_a_mistake_is_one_line_and_exit_code_two(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
):
    # A folder with one IDX file: three are missing, and nothing is downloaded.
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["orthonorm-paper", *arguments])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("orthonorm-paper: ")
    assert message in line


def test_help_loads_nothing_heavy():
    program = (
        "import sys; sys.argv = ['orthonorm-paper', '--help']\n"
        "from orthonorm_paper.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print(*sorted(n for n in ('lightning', 'matplotlib', 'joblib', 'mlxtend') if n in sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120, env=os.environ
    )
    assert done.stdout.splitlines()[-1] == ""
