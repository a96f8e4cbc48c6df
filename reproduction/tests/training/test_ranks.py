"""A run on several processes: the result of one, an error when one dies, and nothing lost but the steps since."""

import dataclasses
import multiprocessing
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.files import Record, record_path, same, work_path
from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import Halve
from orthonorm_paper.training.batch_norm import SharedBatchNorm, share_batch_norm
from orthonorm_paper.training.execute import Busy, execute
from orthonorm_paper.training.processes import launch as launch_module
from orthonorm_paper.training.processes.launch import ProcessDied
from orthonorm_paper.training.settings import Settings
from orthonorm_paper.training.sweep import perform, sweep

ONE = Settings(device="cpu")
TWO = Settings(device="cpu", devices=2, timeout=60.0)


def make(**fields: Any) -> Run:
    """Synthetic images, as these processes know no other table than the package's; four steps an epoch."""
    given: dict[str, Any] = {
        "experiment": "tests",
        "dataset": "mnist-synthetic",
        "model": "mlp",
        "model_args": {"hidden_layers": 2, "width": 12},
        "method": "OLM",
        "lr": 0.1,
        "momentum": 0.9,
        "schedule": Halve(1),
        "augment": "flip-crop",
        "epochs": 3,
        "batch_size": 1024,
    }
    return Run(**(given | fields))


def weights(folder: Path, run: Run) -> dict[str, Tensor]:
    """State of the network in a run's checkpoint."""
    return torch.load(work_path(folder, run, ".ckpt"), weights_only=True)["state_dict"]


def assert_close(record: Record, expected: Record) -> None:
    """The same epochs and outcome, numbers to rounding."""
    assert (record.outcome, len(record.epochs)) == (expected.outcome, len(expected.epochs))
    for line, wanted in zip(record.epochs, expected.epochs, strict=True):
        assert line.to_json().keys() == wanted.to_json().keys()
        for name in ("train_loss", "train_error", "test_loss", "test_error"):
            tolerance = 0.05 if "error" in name else 0
            assert getattr(line, name) == pytest.approx(getattr(wanted, name), rel=1e-5, abs=tolerance)


BATCH_NORM = {"model": "pie-mlp", "model_args": {"hidden_layers": 2, "width": 12, "batch_norm": True}}
SHARED: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("two", {}, {"devices": 2}),
    ("four and batch normalisation", BATCH_NORM, {"devices": 4}),
    ("two that share the weights", BATCH_NORM, {"devices": 2, "strategy": "fsdp"}),
]


@pytest.mark.parametrize(
    ("fields", "options"),
    [pytest.param(*row[1:], id=row[0], marks=[pytest.mark.fsdp2] if "strategy" in row[2] else []) for row in SHARED],
)
def test_several_processes_train_as_one_and_one_continues(
    tmp_path: Path, fields: dict[str, Any], options: dict[str, Any]
):
    run = make(**fields)
    stop = {"stop_at_step": 6}
    execute(run, tmp_path / "one", dataclasses.replace(ONE, **stop))
    stopped = execute(run, tmp_path / "many", dataclasses.replace(ONE, **options, **stop))
    assert stopped.outcome_text == "stopped at step 6"
    strategy = options.get("strategy", "ddp")
    assert stopped.header.devices == (f"{options['devices']} ({strategy})",)
    expected, found = weights(tmp_path / "one", run), weights(tmp_path / "many", run)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=1e-5)
    whole = execute(run, tmp_path / "one", ONE)
    continued = execute(run, tmp_path / "many", ONE)
    assert_close(continued, whole)
    assert continued.end.resumed == 1
    assert continued.header.devices == (f"{options['devices']} ({strategy})", "1")
    assert "devices" not in whole.header.to_json()


@pytest.mark.fsdp2
@pytest.mark.parametrize("momentum", [0.0, 0.9], ids=["no state", "momentum"])
def test_a_run_of_shared_weights_continues_with_the_optimizers_state(tmp_path: Path, momentum: float):
    run = make(**BATCH_NORM, momentum=momentum)
    shared = dataclasses.replace(TWO, strategy="fsdp")
    execute(run, tmp_path / "two", dataclasses.replace(shared, stop_at_step=6))
    continued = execute(run, tmp_path / "two", shared)
    assert continued.end.resumed == 1
    assert_close(continued, execute(run, tmp_path / "one", ONE))


def in_thread(run: Run, folder: Path, settings: Settings) -> tuple[threading.Thread, list[BaseException]]:
    """Start a run; the list gets what it raises."""
    raised: list[BaseException] = []

    def work() -> None:
        try:
            execute(run, folder, settings)
        except UserError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, raised


def own_processes() -> list[BaseProcess]:
    """The processes of runs: other tests of this session keep some of another kind."""
    return [process for process in multiprocessing.active_children() if process.name.startswith("ForkServer")]


def kill_second(run: Run, folder: Path) -> None:
    """Kill the second process of a run once there is a checkpoint."""
    end = time.monotonic() + 60
    while not work_path(folder, run, ".ckpt").exists():
        assert time.monotonic() < end
        time.sleep(0.005)
    children = sorted(own_processes(), key=lambda process: int(re.split("[-:]", process.name)[-1]))
    pid = children[1].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


def killed_and_continued(run: Run, folder: Path, settings: Settings) -> Record:
    """The record of a run one of whose processes is killed, and which is started again."""
    thread, raised = in_thread(run, folder, settings)
    kill_second(run, folder)
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert own_processes() == []
    (error,) = raised
    assert isinstance(error, ProcessDied)
    assert "process 1 of 2 ended with signal 9 (SIGKILL); all were stopped, and the same command con" in str(error)
    assert not record_path(folder, run).exists()
    return execute(run, folder, settings)


def test_a_process_that_is_killed_ends_the_run_and_it_continues_to_the_same_record(tmp_path: Path):
    # Dropout draws from each process's own generator, which the checkpoint keeps.
    run = make(model_args={"hidden_layers": 2, "width": 12, "dropout": 0.3}, epochs=12, batch_size=2048)
    always = dataclasses.replace(TWO, checkpoint_seconds=0.0)
    continued = killed_and_continued(run, tmp_path / "cut", always)
    assert continued.end.resumed == 1
    assert continued.outcome == "completed"
    assert same(continued, execute(run, tmp_path / "whole", TWO))
    assert not work_path(tmp_path / "cut", run, ".ckpt").exists()


def test_a_sweep_on_two_processes_gives_the_records_of_one(tmp_path: Path):
    runs = [make(epochs=1), make(epochs=1, lr=5e6, method="plain-he"), make(epochs=1, seed=1)]
    records = sweep(runs, tmp_path / "two", TWO)
    expected = sweep(runs, tmp_path / "one", ONE)
    assert [record.outcome for record in records] == ["completed", "diverged", "completed"]
    for record, wanted in zip(records, expected, strict=True):
        assert_close(record, wanted)
        assert record.end.step == wanted.end.step


def test_processes_leave_the_group_of_gloo_to_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Before torch 2.8, destroying it can wait for threads that wait for the one that destroys it.
    destroyed: list[str] = []
    for backend in ("gloo", "nccl"):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_backend", lambda backend=backend: backend)
        monkeypatch.setattr(
            torch.distributed, "destroy_process_group", lambda backend=backend: destroyed.append(backend)
        )
        launch_module._member(0, lambda _: None, [], [{}], tmp_path / "results")
    assert destroyed == ["nccl"]


def test_processes_that_a_launcher_starts_on_two_nodes_are_one_run(tmp_path: Path):
    run = make(epochs=1)
    settings = dataclasses.replace(ONE, nodes=2, timeout=60.0)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
    started = []
    for node in range(2):
        places = [place | {"RANK": str(node), "GROUP_RANK": str(node)}]
        # Twice the same run: the second time it is read.
        tasks = [(run, tmp_path / "two", settings, True)] * 2
        arguments = (0, perform, tasks, places, tmp_path / f"said{node}")
        started.append(multiprocessing.get_context("forkserver").Process(target=launch_module._member, args=arguments))
        started[-1].start()
    for process in started:
        process.join(timeout=60)
    assert [process.exitcode for process in started] == [0, 0]
    expected = execute(run, tmp_path / "one", ONE)
    for node in range(2):
        with (tmp_path / f"said{node}").open("rb") as file:
            first, again = launch_module._answers(file)
        assert first is not None
        assert first == again
        assert_close(first, expected)


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, nn.BatchNorm2d], ids=["1d", "2d"])
@pytest.mark.parametrize(
    "options", [{"momentum": 0.1}, {"momentum": None}, {"affine": False}], ids=["moving", "cumulative", "not affine"]
)
def test_shared_batch_norm_in_one_process_is_torchs(kind: type[nn.Module], options: dict[str, Any]):
    torch_module = kind(3, dtype=torch.float64, **options)
    ours = share_batch_norm(nn.Sequential(kind(3, dtype=torch.float64, **options)), torch.device("cpu"))
    assert isinstance(ours[0], SharedBatchNorm)  # pyright: ignore[reportIndexIssue]
    ours.load_state_dict({f"0.{name}": value for name, value in torch_module.state_dict().items()})
    for x in torch.randn(3, 6, 3, *[4] * (2 * (kind is nn.BatchNorm2d)), dtype=torch.float64):
        inputs = [(100 + x).requires_grad_() for _ in range(2)]
        outputs = [module(value) for module, value in zip((torch_module, ours), inputs, strict=True)]
        for output in outputs:
            (output * output.detach().cos()).sum().backward()
        torch.testing.assert_close(outputs[1], outputs[0])
        torch.testing.assert_close(inputs[1].grad, inputs[0].grad)
    for (name, value), expected in zip(ours.state_dict().items(), torch_module.state_dict().values(), strict=True):
        torch.testing.assert_close(value, expected, msg=name)
    for mine, theirs in zip(ours.parameters(), torch_module.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    x = torch.randn(6, 3, *[4] * (2 * (kind is nn.BatchNorm2d)), dtype=torch.float64)
    torch.testing.assert_close(ours.eval()(x), torch_module.eval()(x))


WRONG: list[tuple[str, Callable[[Path], object], type[Exception], str]] = [
    ("devices", lambda _: Settings(devices=0), UserError, "devices should .* 1; got 0"),
    ("nodes", lambda _: Settings(nodes=0), UserError, "nodes should .* 1; got 0"),
    ("workers", lambda _: Settings(workers=-1), UserError, "workers should .* 0; got -1"),
    (
        "strategy",
        lambda _: dataclasses.replace(TWO, strategy="dp"),
        UserError,
        "strategy should be 'auto', 'ddp' or 'fsdp'; got 'dp'",
    ),
    (
        "memory format",
        lambda _: Settings(strategy="fsdp", devices=2, device="cpu", channels_last=True),
        UserError,
        "fsdp divides weights that are contiguous, not with channels last: give one of the two",
    ),
    ("one device", lambda _: Settings(strategy="fsdp"), UserError, "fsdp divides the work of several devices; got one"),
    (
        "batch",
        lambda folder: sweep([make(batch_size=1023)], folder, TWO),
        UserError,
        "every batch is divided evenly among the devices: 2 do not divide the batch_size 1023 of OLM-mlp",
    ),
    ("jobs", lambda folder: sweep([make()], folder, TWO, jobs=2), UserError, "jobs and dask spread runs, devices and"),
    (
        "no place",
        lambda folder: execute(make(), folder, dataclasses.replace(ONE, nodes=2)),
        UserError,
        r"nodes 2: this node does not know its place \(MASTER_ADDR, MASTER_PORT, NODE_RANK not set\): start the comm",
    ),
    (
        "whole matrices",
        lambda folder: execute(make(method="QR"), folder, dataclasses.replace(TWO, strategy="fsdp")),
        UserError,
        "^method QR steps on whole matrices, and fsdp divides them: give strategy ddp$",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_input_says_what_is_right(
    tmp_path: Path, call: Callable[[Path], object], kind: type[Exception], message: str
):
    with pytest.raises(kind, match=message):
        call(tmp_path)
    assert list(tmp_path.glob("*.jsonl")) == []


def test_a_run_that_another_process_holds_is_busy_for_all(tmp_path: Path):
    import filelock

    path = work_path(tmp_path, make(), ".lock")
    path.parent.mkdir(parents=True)
    with filelock.FileLock(path), pytest.raises(Busy, match="is being run by another process"):
        execute(make(), tmp_path, TWO, wait=False)


def test_the_processes_of_a_node_are_told_their_places(monkeypatch: pytest.MonkeyPatch):
    for name, value in (("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500"), ("NODE_RANK", "1")):
        monkeypatch.setenv(name, value)
    places = launch_module._places(Settings(device="cpu", devices=3, nodes=2))
    assert [(place["RANK"], place["LOCAL_RANK"]) for place in places] == [("3", "0"), ("4", "1"), ("5", "2")]
    assert {place["WORLD_SIZE"] for place in places} == {"6"}
    assert {(place["MASTER_ADDR"], place["MASTER_PORT"], place["GROUP_RANK"]) for place in places} == {
        ("10.0.0.1", "29500", "1")
    }


def test_a_run_on_files_that_is_killed_continues_to_the_same_record(pictures: Path, tmp_path: Path):
    fields: dict[str, Any] = {"model_args": {"hidden_layers": 1, "width": 4}, "augment": "none", "batch_size": 2}
    run = make(dataset="image-folder", lr=1e-3, momentum=0.0, **fields)
    settings = dataclasses.replace(TWO, data=pictures, workers=1, checkpoint_seconds=0.0)
    continued = killed_and_continued(run, tmp_path / "cut", settings)
    assert (continued.outcome, continued.end.resumed) == ("completed", 1)
    assert same(continued, execute(run, tmp_path / "whole", settings))
    assert_close(continued, execute(run, tmp_path / "one", dataclasses.replace(ONE, data=pictures, workers=0)))
