"""A smoke size of every experiment and every method, through loader, augmentation, conversion, training and record.

ImageNet's networks are trained from JPEG folders in the tests of the streaming loader.
"""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from orthonorm_paper.data import load_dataset
from orthonorm_paper.experiments import EXPERIMENTS
from orthonorm_paper.records.files import COMPLETED, same
from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.schedules import Steps
from orthonorm_paper.reports.publish import write_report
from orthonorm_paper.training.execute import Settings, execute
from orthonorm_paper.training.sweep import sweep
from paper_support.smoke import NAMES, shrink, smoke
from paper_support.tiny_files import write_files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        # The tables are cached by name and folder, and this folder is new.
        yield write_files(tmp_path_factory.mktemp("data"), patch)


@pytest.mark.parametrize("name", NAMES)
def test_every_method_of_an_experiment_trains(name: str, files: Path, tmp_path: Path):
    runs = smoke(name)
    assert {run.method for run in runs} == {run.method for run in EXPERIMENTS[name].runs()}
    sweep(runs, tmp_path, Settings(device="cpu", data=files))
    records = read_folder(tmp_path)
    assert {record.run for record in records} == set(runs)
    for record in records:
        data = load_dataset(record.run.dataset, files)
        assert record.header.data.description == data.description
        if record.run.method == "OLM_var" and record.outcome != COMPLETED:
            continue
        assert record.outcome == COMPLETED, record.run.id
        (epoch,) = record.epochs
        assert epoch.step == len(data.train_y) // 7
        assert math.isfinite(record.final("train_loss"))
        assert math.isfinite(record.final("test_loss"))
        if record.run.method.startswith("OLM"):
            assert record.final("orthogonality_error") < 1e-3, record.run.id
    assert write_report(name, tmp_path, tmp_path / "report")[0].stat().st_size > 500


def test_a_network_with_everything_continues_as_if_it_had_not_stopped(files: Path, tmp_path: Path):
    # Batch normalisation, dropout, augmentation, momentum that restarts, orthogonal weights, two epochs of two steps.
    like = next(run for run in EXPERIMENTS["wrn"].runs() if run.method == "OLM")
    run = dataclasses.replace(shrink(like), epochs=2, schedule=Steps((1,), 0.2))
    whole = execute(run, tmp_path / "whole", Settings(device="cpu", data=files))
    stopped = execute(run, tmp_path / "cut", Settings(device="cpu", data=files, stop_at_step=1))
    assert stopped.outcome == "stopped"
    continued = execute(run, tmp_path / "cut", Settings(device="cpu", data=files))
    assert continued.end.resumed == 1
    assert same(whole, continued)
