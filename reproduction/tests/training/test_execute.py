"""One run: continued bit for bit, diverged as an outcome, alone in its process."""

import contextlib
import dataclasses
import json
import logging
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from orthonorm_paper import models
from orthonorm_paper.data import batch_order, load_dataset
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.methods import table as methods
from orthonorm_paper.records.files import Record, read_record, record_path, same, work_path
from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import Halve
from orthonorm_paper.reports.figures.mean_curves import curve
from orthonorm_paper.training.checkpoint_file import CheckpointFile
from orthonorm_paper.training.execute import Busy, Settings, execute
from orthonorm_paper.training.recorder import Recorder

MakeRun = Callable[..., Run]
CPU = Settings(device="cpu")
# Shuffling, dropout, augmentation, momentum that restarts, a rate that changes: all that a resumed
# run could get wrong. Three steps an epoch.
RICH: dict[str, Any] = {
    "model_args": {"hidden_layers": 2, "width": 12, "dropout": 0.3},
    "augment": "flip-crop",
    "momentum": 0.9,
    "restart_momentum": True,
    "schedule": Halve(1),
}


def stir() -> None:
    """Leave every global generator somewhere else."""
    torch.rand(5)
    random.random()
    np.random.rand(3)  # noqa: NPY002


@pytest.mark.parametrize("step", range(1, 9))
def test_a_run_that_stops_at_any_step_ends_as_if_it_had_not(tiny: MakeRun, tmp_path: Path, step: int):
    run = tiny(**RICH)
    whole = execute(run, tmp_path / "whole", CPU)
    stopped = execute(run, tmp_path / "cut", dataclasses.replace(CPU, stop_at_step=step))
    assert stopped.outcome_text == f"stopped at step {step}"
    assert len(stopped.epochs) == step // 3
    assert not record_path(tmp_path / "cut", run).exists()
    stir()
    continued = execute(run, tmp_path / "cut", CPU)
    assert continued.outcome_text == "completed"
    assert same(continued, whole)
    assert (whole.end.resumed, continued.end.resumed) == (0, 1)


def test_a_run_may_stop_at_every_step(tiny: MakeRun, tmp_path: Path):
    run = tiny(**RICH, method="OLM")
    whole = execute(run, tmp_path / "whole", CPU)
    for step in range(1, 9):
        execute(run, tmp_path / "cut", dataclasses.replace(CPU, stop_at_step=step))
        stir()
    continued = execute(run, tmp_path / "cut", dataclasses.replace(CPU, checkpoint_seconds=0.0))
    assert same(continued, whole)
    assert continued.end.resumed == 8
    assert not work_path(tmp_path / "cut", run, ".ckpt").exists()


def test_a_deadline_in_the_past_stops_after_one_step(tiny: MakeRun, tmp_path: Path):
    record = execute(tiny(), tmp_path, dataclasses.replace(CPU, deadline=0.0))
    assert record.outcome_text == "stopped at step 1"


def test_an_epoch_ends_in_a_checkpoint_however_long_those_within_are_apart(
    tiny: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("orthonorm_paper.training.recorder._BETWEEN_EPOCHS", 0.0)
    saved: list[int] = []
    original = Recorder.save

    def save(self: Recorder, trainer: Any) -> None:
        saved.append(trainer.global_step)
        original(self, trainer)

    monkeypatch.setattr(Recorder, "save", save)
    execute(tiny(epochs=4), tmp_path, dataclasses.replace(CPU, checkpoint_seconds=1e9))
    # Four epochs of three steps; after the last there is the record.
    assert saved == [3, 6, 9]


@pytest.mark.parametrize("damage", ["truncated", "other code"])
def test_a_checkpoint_that_cannot_be_used_starts_the_run_anew(
    tiny: MakeRun, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
):
    run = tiny(**RICH)
    whole = execute(run, tmp_path / "whole", CPU)
    execute(run, tmp_path / "cut", dataclasses.replace(CPU, stop_at_step=4))
    checkpoint = work_path(tmp_path / "cut", run, ".ckpt")
    if damage == "truncated":
        checkpoint.write_bytes(checkpoint.read_bytes()[:500])
    else:
        state = torch.load(checkpoint, weights_only=True)
        first = json.loads(state["record"]["lines"][0])
        state["record"]["lines"][0] = json.dumps(first | {"commit": "another"})
        CheckpointFile().save_checkpoint(state, checkpoint)
    with caplog.at_level(logging.WARNING):
        record = execute(run, tmp_path / "cut", CPU)
    assert same(record, whole)
    assert record.end.resumed == 0
    assert "start again" in caplog.text


def bare_loop(run: Run) -> list[float]:
    """The same training without an engine: the mean loss of each epoch."""
    data = load_dataset(run.dataset)
    torch.manual_seed(run.seed)
    arguments = dict(run.model_args)
    network = models.build_model(
        "mlp", arguments, shape=data.shape, classes=data.classes, start="he", seed=run.seed
    )  # fmt: skip
    optimizer = torch.optim.SGD(network.parameters(), run.lr, momentum=run.momentum, weight_decay=run.weight_decay)
    means = []
    for epoch in range(run.epochs):
        losses = []
        for indices in batch_order(run.seed, epoch, len(data.train_y), run.batch_size):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(network(data.train_x[indices]), data.train_y[indices])
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        means.append(sum(losses) / len(losses))
    return means


def test_the_engine_trains_as_a_bare_loop_does(tiny: MakeRun, tmp_path: Path):
    run = tiny(momentum=0.9, weight_decay=0.01, epochs=4)
    record = execute(run, tmp_path, CPU)
    assert curve(record, "train_loss") == pytest.approx(bare_loop(run), rel=1e-6)
    assert [line.step for line in record.epochs] == [3, 6, 9, 12]
    assert curve(record, "train_loss")[-1] < 0.5 * curve(record, "train_loss")[0]


def test_errors_are_in_percent_of_the_samples_seen(tiny: MakeRun, tmp_path: Path):
    record = execute(tiny(lr=0.0, epochs=1), tmp_path, CPU)
    data = load_dataset("tiny")
    network = models.build_model(
        "mlp", {"hidden_layers": 2, "width": 12}, shape=(1, 8, 8), classes=4, start="he", seed=0
    )
    with torch.no_grad():
        wrong = network(data.test_x).argmax(1) != data.test_y
        indices = torch.cat(list(batch_order(0, 0, 60, 16)))
        wrong_in_training = network(data.train_x[indices]).argmax(1) != data.train_y[indices]
        loss = nn.functional.cross_entropy(network(data.test_x), data.test_y)
    assert record.epochs[0].test_error == pytest.approx(100 * int(wrong.sum()) / 16)
    assert record.epochs[0].train_error == pytest.approx(100 * int(wrong_in_training.sum()) / 48)
    assert record.epochs[0].test_loss == pytest.approx(float(loss), rel=1e-6)


def test_the_rate_follows_the_schedule(tiny: MakeRun, tmp_path: Path):
    record = execute(tiny(lr=0.4, schedule=Halve(2), epochs=5), tmp_path, CPU)
    assert [line.lr for line in record.epochs] == [0.4, 0.4, 0.2, 0.2, 0.1]


def test_momentum_restarts_only_where_it_is_asked_to_and_the_rate_changes(tiny: MakeRun, tmp_path: Path):
    def losses(**fields: Any) -> list[float]:
        record = execute(tiny(momentum=0.9, epochs=3, **fields), tmp_path, CPU)
        return curve(record, "train_loss")

    kept, restarted = (losses(schedule=Halve(2), restart_momentum=restart) for restart in (False, True))
    assert restarted[:2] == kept[:2]
    assert restarted[2] != kept[2]
    assert losses(restart_momentum=True) == losses()


def test_a_run_is_a_function_of_its_seed(tiny: MakeRun, tmp_path: Path):
    first = execute(tiny(**RICH), tmp_path / "a", CPU)
    stir()
    assert same(execute(tiny(**RICH), tmp_path / "b", CPU), first)
    other = execute(tiny(**RICH, seed=1), tmp_path / "a", CPU)
    assert other.epochs[0].train_loss != first.epochs[0].train_loss


def test_a_loss_past_the_limit_is_an_outcome(tiny: MakeRun, tmp_path: Path):
    run = tiny(lr=1000.0, epochs=4)
    record = execute(run, tmp_path, CPU)
    assert record.outcome == "diverged"
    assert record.end.step == 2
    assert record.end.loss is not None
    assert record.end.loss > 1000
    assert str(record.end.reason).endswith("passed 1000")
    assert same(read_record(record_path(tmp_path, run)), record)


def test_the_step_reported_is_that_of_the_first_bad_loss(tiny: MakeRun, tmp_path: Path):
    whole = execute(tiny(lr=0.1, epochs=2), tmp_path, CPU)
    assert whole.outcome == "completed"
    # The first loss of all is above 1, and none may be.
    record = execute(tiny(lr=0.1, epochs=2, loss_limit=1.0), tmp_path, CPU)
    assert record.outcome_text == "diverged at step 1"
    assert record.epochs == ()


class Breaking(nn.Module):
    """Classifier whose seventh forward in training goes wrong."""

    def __init__(self, *, classes: int, raises: bool) -> None:
        super().__init__()
        self.linear, self.raises, self.count = nn.Linear(64, classes), raises, 0

    def forward(self, x: Tensor) -> Tensor:
        self.count += self.training
        logits = self.linear(x.flatten(1))
        if self.training and self.count == 7:
            if self.raises:
                torch.linalg.cholesky(-torch.eye(2))
            return logits * torch.nan
        return logits


@pytest.mark.parametrize(
    ("raises", "reason"), [(False, "loss is nan"), (True, "linalg.cholesky")], ids=["NaN", "LinAlgError"]
)
def test_numbers_that_are_not_finite_are_an_outcome(
    tiny: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raises: bool, reason: str
):
    def breaking(*, classes: int, **_: Any) -> nn.Module:
        return Breaking(classes=classes, raises=raises)

    monkeypatch.setitem(models.MODELS, "breaking", breaking)
    plain = dataclasses.replace(methods.METHODS["plain"], error=lambda _: 0.0)
    monkeypatch.setitem(methods.METHODS, "plain", plain)
    record = execute(tiny(model="breaking", model_args={}, method="plain"), tmp_path, CPU)
    assert record.outcome_text == "diverged at step 7"
    assert str(record.end.reason).startswith(reason)
    assert len(record.epochs) == 2
    assert record.end.loss is None


# Those for recurrent weights: reproduction/tests/experiments/test_sequences.py.
@pytest.mark.parametrize("label", [label for label in methods.METHODS if not label.startswith("recurrent")])
def test_every_method_trains(tiny: MakeRun, tmp_path: Path, label: str):
    # Enough hidden layers for the label that replaces the first four.
    depth = 4 if label == "OLM-L4" else 2
    run = tiny(method=label, epochs=6, model_args={"hidden_layers": depth, "width": 12})
    record = execute(run, tmp_path, CPU)
    if label == "OLM_var":
        # Its failure to converge is what the paper reports.
        assert record.outcome in {"completed", "diverged"}
        return
    assert record.outcome == "completed"
    assert curve(record, "train_loss")[-1] < curve(record, "train_loss")[0]
    free = label in {"plain", "plain-he", "plain-orthogonal", "WN", "WN-row-norms", "penalty-0.01", "penalty-0.1"}
    assert (record.final("orthogonality_error") < 1e-5) is not free


def test_a_recorded_run_is_read_and_not_trained(tiny: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = tiny()
    first = execute(run, tmp_path, CPU)
    monkeypatch.setattr("orthonorm_paper.training.execute._train", pytest.fail)
    assert execute(run, tmp_path, CPU) == first


def test_a_run_that_another_process_is_at_is_busy(tiny: MakeRun, tmp_path: Path):
    run = tiny()
    with hold(tmp_path, run), pytest.raises(Busy, match="is being run by another process"):
        execute(run, tmp_path, CPU, wait=False)
    assert execute(run, tmp_path, CPU, wait=False).outcome == "completed"


@contextlib.contextmanager
def hold(folder: Path, run: Run):
    import filelock

    path = work_path(folder, run, ".lock")
    path.parent.mkdir(parents=True)
    with filelock.FileLock(path):
        yield


def test_runs_in_threads_of_one_process_do_not_disturb_each_other(tiny: MakeRun, tmp_path: Path):
    runs = [tiny(**RICH, seed=seed) for seed in range(4)]
    expected = [execute(run, tmp_path / "one by one", CPU) for run in runs]
    records: dict[int, Record] = {}

    def work(run: Run) -> None:
        records[run.seed] = execute(run, tmp_path / "together", CPU)

    threads = [threading.Thread(target=work, args=(run,)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert all(same(records[run.seed], record) for run, record in zip(runs, expected, strict=True))


def test_threads_are_fixed_during_a_run_and_put_back(tiny: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen = []
    original = models.MODELS["mlp"]

    def watched(**arguments: Any) -> nn.Module:
        seen.append(torch.get_num_threads())
        return original(**arguments)

    monkeypatch.setitem(models.MODELS, "mlp", watched)
    before = torch.get_num_threads()
    record = execute(tiny(epochs=1), tmp_path, Settings(device="cpu", threads=2))
    assert seen == [2]
    assert record.header.threads == 2
    assert torch.get_num_threads() == before


def test_the_header_says_what_may_have_decided_the_result(tiny: MakeRun, tmp_path: Path):
    run = tiny()
    header = execute(run, tmp_path, CPU).header
    assert header.run == run
    assert header.id == run.id
    assert header.data.to_json() == {"description": "synthetic patterns", "digest": "tiny"}
    assert header.steps_per_epoch == 3
    assert header.parameters == 64 * 12 + 12 + 12 * 12 + 12 + 12 * 4 + 4
    assert header.versions["torch"] == torch.__version__
    assert header.device.startswith("cpu (")


WRONG: list[tuple[str, Callable[[MakeRun, Path], object], str]] = [
    ("method", lambda make, folder: execute(make(method="SGD"), folder), "method must be one of plain"),
    ("model", lambda make, folder: execute(make(model="lenet"), folder), "model must be one of mlp, .*; got 'lenet'"),
    ("dataset", lambda make, folder: execute(make(dataset="coco"), folder), "dataset must be one of .*got 'coco'"),
    ("batch", lambda make, folder: execute(make(batch_size=61), folder), "at most the 60 training samples"),
    (
        "method argument",
        lambda make, folder: execute(make(method_args={"group_size": 4}), folder),
        "method plain-he takes no arguments",
    ),
    (
        "device",
        lambda *_: dataclasses.replace(CPU, device="tpu"),
        "device should be 'auto', 'cpu' or 'cuda'; got 'tpu'",
    ),
    ("threads", lambda *_: Settings(threads=0), "threads should be .* 1; got 0"),
    (
        "folder",
        lambda make, _: execute(make(), Path("/proc/orthonorm")),
        "results folder /proc/orthonorm cannot be written .*: give another one",
    ),
]


@pytest.mark.parametrize(("call", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_input_says_what_is_right(
    tiny: MakeRun, tmp_path: Path, call: Callable[[MakeRun, Path], object], message: str
):
    with pytest.raises(UserError, match=message):
        call(tiny, tmp_path)


def test_a_results_folder_that_is_a_file_is_an_error(tiny: MakeRun, tmp_path: Path):
    (tmp_path / "results").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        execute(tiny(), tmp_path / "results", CPU)
