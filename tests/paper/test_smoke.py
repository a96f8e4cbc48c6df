"""A smoke size of every experiment and every method, through loader, augmentation, conversion, training and record.

ImageNet's networks are trained from JPEG folders in the tests of the streaming loader.
"""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from orthonorm.paper.config import Run, Scalar
from orthonorm.paper.data import load_dataset
from orthonorm.paper.experiments import EXPERIMENTS
from orthonorm.paper.publish import write_report
from orthonorm.paper.records import COMPLETED, read_folder, same
from orthonorm.paper.schedules import Steps
from orthonorm.paper.sweep import sweep
from orthonorm.paper.train import Settings, execute
from paper.tiny_files import write_files

# Streamed images are in test_streaming.py, and the many generated sequences in test_sequences.py.
NAMES = [name for name in EXPERIMENTS if not name.startswith("imagenet") and name != "copying"]
SMALLEST: dict[str, dict[str, Scalar]] = {
    "mlp": {"hidden_layers": 2, "width": 12},
    "pie-mlp": {"width": 12},
    "vgg": {"width": 0.05},
    "inception-cifar": {"width": 0.05},
    "wide-resnet": {"depth": 10, "width": 1},
    "preresnet-cifar": {"depth": 11},
    "rnn": {"width": 4},
    "lstm": {"width": 4},
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        # The tables are cached by name and folder, and this folder is new.
        yield write_files(tmp_path_factory.mktemp("data"), patch)


def smoke(name: str) -> list[Run]:
    """One run of each method as the experiment has it, and one on each data set: one epoch of two small steps."""
    kept: dict[object, Run] = {}
    for run in EXPERIMENTS[name].runs():
        batch_norm = run.model_arguments.get("batch_norm", False)
        kept.setdefault((run.model, run.method, run.method_args, run.optimizer, batch_norm), run)
    for run in EXPERIMENTS[name].runs():
        kept.setdefault(run.dataset, run)
    return list(dict.fromkeys(map(shrink, kept.values())))


def shrink(run: Run) -> Run:
    arguments = run.model_arguments | SMALLEST[run.model]
    lr = min(run.lr, 0.05)
    return dataclasses.replace(run, model_args=arguments, lr=lr, epochs=1, batch_size=7, seed=0)


@pytest.mark.parametrize("name", NAMES)
def test_every_method_of_an_experiment_trains(name: str, files: Path, tmp_path: Path):
    runs = smoke(name)
    assert {run.method for run in runs} == {run.method for run in EXPERIMENTS[name].runs()}
    sweep(runs, tmp_path, Settings(device="cpu", data=files))
    records = read_folder(tmp_path)
    assert {record.run for record in records} == set(runs)
    for record in records:
        data = load_dataset(record.run.dataset, files)
        assert record.header["data"]["description"] == data.description
        if record.run.method == "OLM_var" and record.outcome != COMPLETED:
            continue
        assert record.outcome == COMPLETED, record.run.id
        (epoch,) = record.epochs
        assert epoch["step"] == len(data.train_y) // 7
        assert math.isfinite(epoch["train_loss"])
        assert math.isfinite(epoch["test_loss"])
        if record.run.method.startswith("OLM"):
            assert epoch["orthogonality_error"] < 1e-3, record.run.id
    assert write_report(name, tmp_path, tmp_path / "report")[0].stat().st_size > 500


def test_a_network_with_everything_continues_as_if_it_had_not_stopped(files: Path, tmp_path: Path):
    # Batch normalisation, dropout, augmentation, momentum that restarts, orthogonal weights, two epochs of two steps.
    like = next(run for run in EXPERIMENTS["wrn"].runs() if run.method == "OLM")
    run = dataclasses.replace(shrink(like), epochs=2, schedule=Steps((1,), 0.2))
    whole = execute(run, tmp_path / "whole", Settings(device="cpu", data=files))
    stopped = execute(run, tmp_path / "cut", Settings(device="cpu", data=files, stop_at_step=1))
    assert stopped.outcome == "stopped"
    continued = execute(run, tmp_path / "cut", Settings(device="cpu", data=files))
    assert continued.end["resumed"] == 1
    assert same(whole, continued)
