"""Sweeps: killed and started again, two at once, on a Dask cluster; always the same records."""

import dataclasses
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orthonorm_paper.cli.progress import show_progress
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.files import read_record, record_path, same, work_path
from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.run import Run
from orthonorm_paper.training import sweep as sweep_module
from orthonorm_paper.training.execute import Settings
from orthonorm_paper.training.sweep import epochs_done, perform, sweep

CPU = Settings(device="cpu", checkpoint_seconds=0.0)


def grid(dataset: str, epochs: int) -> list[Run]:
    """Two methods, one of the rates far too high."""
    return [
        Run(
            experiment="tests",
            dataset=dataset,
            model="mlp",
            model_args={"hidden_layers": 2, "width": 20, "dropout": 0.2},
            method=method,
            lr=lr,
            epochs=epochs,
            batch_size=20,
        )
        for method in ("plain-he", "OLM")
        for lr in (0.05, 5000.0)
    ]


# Long enough to be killed in the middle.
RUNS = grid("tiny", epochs=25)
# For processes that know the table of data sets only: real digits.
DIGITS = [dataclasses.replace(run, batch_size=800, epochs=2) for run in grid("mnist-5k", epochs=2)]

SWEEP = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from paper_support.tiny_data import synthetic
from test_sweep import CPU, RUNS
from orthonorm_paper import data
from orthonorm_paper.training.sweep import sweep
data.DATASETS["tiny"] = synthetic
sweep(RUNS, Path(sys.argv[1]), CPU)
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Start the sweep of RUNS in a process of its own."""
    here = Path(__file__).parent
    command = [sys.executable, "-c", SWEEP, str(folder), str(here), str(here.parent)]
    return subprocess.Popen(command)


def until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait for a condition while the process is alive, two minutes at most."""
    end = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, "the sweep ended before the condition was met"
        assert time.monotonic() < end
        time.sleep(0.002)


def kill(process: subprocess.Popen[bytes]) -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.wait(timeout=30)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("digits")
    records = sweep(DIGITS, folder, CPU)
    assert [record.outcome for record in records] == ["completed", "diverged"] * 2
    return folder


def assert_same(folder: Path, expected: Path, runs: list[Run]) -> None:
    names = [record_path(folder, run).name for run in runs]
    assert sorted(path.name for path in folder.glob("*.jsonl")) == sorted(names)
    for name in names:
        assert same(read_record(folder / name), read_record(expected / name))


@pytest.mark.usefixtures("tiny")
def test_a_sweep_that_is_killed_continues_to_equal_records(tmp_path: Path):
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    first = start(cut)
    until(lambda: work_path(cut, RUNS[0], ".ckpt").exists(), first)
    kill(first)
    assert read_folder(cut) == []
    second = start(cut)
    until(lambda: work_path(cut, RUNS[2], ".ckpt").exists(), second)
    kill(second)
    assert len(read_folder(cut)) == 2
    sweep(RUNS, cut, CPU)
    sweep(RUNS, whole, CPU)
    assert_same(cut, whole, RUNS)
    # What was killed after a checkpoint was taken up there.
    resumed = [read_record(record_path(cut, run)).end.resumed for run in RUNS]
    assert resumed == [1, 0, 1, 0]


@pytest.mark.usefixtures("tiny")
def test_two_sweeps_on_one_folder_share_the_runs(tmp_path: Path):
    both, alone = tmp_path / "both", tmp_path / "alone"
    other = start(both)
    until(lambda: work_path(both, RUNS[0], ".ckpt").exists(), other)
    records = sweep(RUNS, both, CPU)
    assert other.wait(timeout=120) == 0
    assert [record.run for record in records] == RUNS
    sweep(RUNS, alone, CPU)
    assert_same(both, alone, RUNS)
    assert all(record.end.resumed == 0 for record in records)


def test_parallel_processes_give_the_same_records(digits: Path, tmp_path: Path):
    records = sweep(DIGITS, tmp_path, CPU, jobs=2)
    assert [record.run for record in records] == DIGITS
    assert_same(tmp_path, digits, DIGITS)


@pytest.fixture
def scheduler() -> Iterator[str]:
    """A real Dask scheduler and two workers, on the loopback address."""
    from distributed import LocalCluster

    cluster: Any = LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
    )
    with cluster:
        yield cluster.scheduler_address


def test_a_cluster_gives_the_same_records(digits: Path, tmp_path: Path, scheduler: str):
    assert scheduler.startswith("tcp://127.0.0.1:")
    records = sweep(DIGITS, tmp_path, CPU, dask=scheduler)
    assert [record.run for record in records] == DIGITS
    assert_same(tmp_path, digits, DIGITS)


def test_a_record_from_a_machine_with_another_disk_is_kept_here(tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = tiny()

    def elsewhere(task: Any) -> Any:
        return perform((task[0], tmp_path / "elsewhere", *task[2:]))

    monkeypatch.setattr(sweep_module, "perform", elsewhere)
    (record,) = sweep([run], tmp_path / "here", CPU)
    assert same(read_record(record_path(tmp_path / "here", run)), record)


def test_a_sweep_reads_what_is_recorded_and_keeps_the_order(tiny, tmp_path: Path):
    runs = [tiny(seed=seed) for seed in range(3)]
    (middle,) = sweep(runs[1:2], tmp_path, CPU)
    records = sweep(runs, tmp_path, CPU)
    assert [record.run for record in records] == runs
    assert records[1] == middle


def test_past_the_deadline_nothing_begins(tiny, tmp_path: Path):
    settings = Settings(device="cpu", deadline=time.time() - 1)
    assert sweep([tiny()], tmp_path, settings) == []
    assert list(tmp_path.glob("*.jsonl")) == []


def test_epochs_are_counted_over_records_and_runs_in_progress(tiny, tmp_path: Path):
    runs = [tiny(seed=seed) for seed in range(3)]
    sweep(runs[:1], tmp_path, CPU)
    sweep(runs[1:2], tmp_path, Settings(device="cpu", stop_at_step=7))
    assert epochs_done(tmp_path, runs) == 3 + 2 + 0


WRONG: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("jobs", {}, {"jobs": 0}, "jobs must be at least 1; got 0"),
    ("method", {"method": "SGD"}, {}, "method must be one of plain"),
    ("dataset", {"dataset": "coco"}, {}, "dataset must be one of .* got 'coco'"),
    ("address", {}, {"dask": "nowhere"}, "no Dask scheduler answers at nowhere"),
]


@pytest.mark.parametrize(("fields", "options", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_input_is_found_before_anything_begins(
    tiny, tmp_path: Path, fields: dict[str, Any], options: dict[str, Any], message: str
):
    with pytest.raises(UserError, match=message):
        sweep([tiny(), tiny(**fields)], tmp_path, CPU, **options)
    assert list(tmp_path.glob("*.jsonl")) == []


def test_in_a_file_progress_is_a_line_at_the_beginning_and_one_where_epochs_were_added(tiny, tmp_path: Path):
    runs = [tiny(seed=seed) for seed in (0, 1)]
    total, stream = 2 * runs[0].epochs, io.StringIO()
    with show_progress(Console(file=stream, force_terminal=False, width=20), "tests", runs, tmp_path):
        assert stream.getvalue() == f"tests, 2 runs: 0 of {total} epochs after 0 s\n"
        sweep(runs, tmp_path, CPU)
    _, *lines = stream.getvalue().splitlines()
    assert lines[-1].startswith(f"tests, 2 runs: {total} of {total} epochs after ")
