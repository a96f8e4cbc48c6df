"""Experiments: the paper's tables and settings, rates that one chooses for another, and synthetic likenesses."""

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from orthonorm_paper.data import DATASETS
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.experiments import EXPERIMENTS, Experiment, experiment, synthetic_of
from orthonorm_paper.experiments.derived import variation
from orthonorm_paper.experiments.derived.tuned import Planned, count, planned
from orthonorm_paper.experiments.derived.variation import varied
from orthonorm_paper.methods.table import method
from orthonorm_paper.records.files import Record, write_record
from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import rate
from orthonorm_paper.records.variations import base_name
from paper_support.recorded import changed, record

FULL = [name for name, entry in EXPERIMENTS.items() if entry.size == "full"]


def test_every_table_and_figure_of_the_paper_has_its_experiment():
    shown = " ".join(entry.shows for entry in EXPERIMENTS.values())
    numbers = {(kind, int(number)) for kind, number in re.findall(r"(Table|Figure)s? (\d+)", shown)}
    for first, last in re.findall(r"(\d+)-(\d+)", shown):
        numbers |= {("Figure", number) for number in range(int(first), int(last) + 1)}
    # Figure 1 is a diagram of the method.
    assert numbers | {("Figure", 4)} == {*(("Table", i) for i in range(1, 5)), *(("Figure", i) for i in range(2, 15))}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiments_runs_are_its_own_and_its_methods_are_known(name: str):
    runs = EXPERIMENTS[name].runs()
    assert {run.experiment for run in runs} == {name}
    for model, label, arguments in {(run.model, run.method, run.method_args) for run in runs}:
        assert method(label, model, dict(arguments)).label == label


def rates_of(name: str, **fields: object) -> list[float]:
    """The course of the rate over the epochs of the first run with these fields, for a start at 1."""
    run = next(r for r in EXPERIMENTS[name].runs() if all(getattr(r, key) == value for key, value in fields.items()))
    return [rate(run.schedule, 1.0, epoch) for epoch in range(run.epochs)]


def test_rates_follow_the_papers_schedules():
    for name in ("vgg", "inception"):
        course = rates_of(name)
        assert len(course) == 100
        # Epochs count from 1: after each even one e the rate is 0.01^(e/100).
        assert course[:4] == pytest.approx([1, 1, 0.01**0.02, 0.01**0.02])
        assert course[-2:] == pytest.approx([0.01**0.98] * 2)
    wide = rates_of("wrn", model="wide-resnet")
    assert [wide[e] for e in (59, 60, 119, 120, 159, 160, 199)] == pytest.approx(
        [1, 0.2, 0.2, 0.04, 0.04, 0.008, 0.008]
    )
    course = rates_of("imagenet-resnet34")
    assert course == pytest.approx([100 ** (-e / 50) for e in range(1, 51)])
    assert set(rates_of("pie-groups")) == {1}


# Batch, momentum, Nesterov, decay, restart of the momentum, augmentation: section by section as the authors ran them.
SETTINGS = {
    "pie-groups": (256, 0.0, False, 0.0, False, "none"),
    "vgg": (256, 0.9, True, 5e-4, True, "flip-crop"),
    "inception": (64, 0.9, True, 5e-4, True, "flip-crop"),
    "wrn-shortcuts": (128, 0.9, True, 5e-4, True, "flip-crop"),
    "imagenet-alexnet": (64, 0.9, True, 1e-4, False, "none"),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_training_is_the_papers(name: str):
    found = {
        (run.batch_size, run.momentum, run.nesterov, run.weight_decay, run.restart_momentum, run.augment)
        for run in EXPERIMENTS[name].runs()
    }
    assert found == {SETTINGS[name]}


def tried(run: Run, test_error: float) -> Record:
    """Record of a run that ended with this error: synthetic."""
    whole = record("OLM", 0.1, (1.0,))
    line = whole.epochs[0].model_copy(update={"test_error": test_error, "test_loss": 1.0})
    return dataclasses.replace(changed(whole, id=run.id, run=run.to_json()), epochs=(line,))


def record_tune(results: Path, best: Callable[[Run], float], name: str = "pie-tune-synthetic") -> None:
    for run in experiment(name).runs():
        write_record(results / name, tried(run, 10 + abs(run.lr - best(run))))


def best_rate(run: Run) -> float:
    if run.optimizer == "adam":
        return 0.005
    return 0.1 if run.model_args else 0.5


def test_each_run_takes_the_rate_of_its_own_kind(tmp_path: Path):
    record_tune(tmp_path, best_rate)
    for name, number, best in (
        ("pie-groups", 11, 0.5),
        ("pie-batchnorm", 5, 0.1),
        ("pie-adam", 5, 0.005),
    ):
        entry = experiment(f"{name}-synthetic")
        runs = planned(entry, tmp_path).runs
        assert {run.lr for run in runs} == {best}
        assert len(runs) == number == count(entry, entry.runs())


def test_what_chooses_a_rate_and_is_missing_is_named(tmp_path: Path):
    record_tune(tmp_path, best_rate)
    entry = experiment("pie-adam-synthetic")
    lost = next(r for r in experiment("pie-tune-synthetic").runs() if r.optimizer == "adam" and r.method == "WN")
    (tmp_path / "pie-tune-synthetic" / f"{lost.id}.jsonl").unlink()
    with pytest.raises(UserError, match=f"{re.escape(lost.id)}[.] .*run pie-tune-synthetic"):
        planned(entry, tmp_path)
    # What is not asked for is not missed.
    assert {run.method for run in planned(entry, tmp_path, ["method=OLM,plain"]).runs} == {"OLM", "plain"}
    with pytest.raises(UserError, match=r"pie-tune-synthetic .*0\.005"):
        planned(entry, tmp_path, ["method=OLM", "lr=0.001"])


def test_a_method_that_diverged_at_every_rate_is_left_out_by_name_and_the_others_run(tmp_path: Path):
    record_tune(tmp_path, best_rate)
    for run in experiment("pie-tune-synthetic").runs():
        if run.method == "WN" and run.optimizer == "adam":
            lost = tried(run, 10.0)
            end = lost.end.model_copy(update={"outcome": "diverged", "reason": "loss is nan"})
            write_record(tmp_path / "pie-tune-synthetic", dataclasses.replace(lost, end=end))
    entry = experiment("pie-adam-synthetic")
    runs, left_out = planned(entry, tmp_path)
    assert ({run.method for run in runs}, left_out) == ({"plain", "plain-he", "OLM", "OLM-scale"}, ["WN"])
    assert planned(experiment("pie-groups-synthetic"), tmp_path).left_out == []
    demo = EXPERIMENTS["demo"]
    assert planned(demo, tmp_path) == Planned(demo.runs(), [])


def test_a_variation_is_an_experiment_of_its_own_name():
    entry = varied(EXPERIMENTS["omdsm-5k"], (0.03, 0.1), 10, 2)
    runs = entry.runs()
    assert entry.name == "omdsm-5k-lr0.03_0.1-epochs10-seeds2"
    assert {run.experiment for run in runs} == {entry.name}
    assert ({run.lr for run in runs}, {run.epochs for run in runs}, {run.seed for run in runs}) == (
        {0.03, 0.1},
        {10},
        {0, 1},
    )
    # As many kinds as before, each once a rate and seed; halved half-way, as before.
    kinds = {(run.method, run.model_args, run.batch_size) for run in EXPERIMENTS["omdsm-5k"].runs()}
    assert len(runs) == len(set(runs)) == 4 * len(kinds)
    assert {rate(run.schedule, 1.0, 4) for run in runs} == {1.0}
    assert {rate(run.schedule, 1.0, 5) for run in runs} == {0.5}
    assert varied(EXPERIMENTS["demo"]) is EXPERIMENTS["demo"]
    assert base_name(entry.name) == "omdsm-5k"
    assert all(base_name(name) == name for name in EXPERIMENTS)


def test_a_variation_without_rates_still_takes_the_chosen_ones_and_with_them_its_own():
    assert varied(EXPERIMENTS["vgg"], seeds=1).rates_from == "vgg-tune"
    assert varied(EXPERIMENTS["vgg"], (0.2,)).rates_from == ""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: varied(EXPERIMENTS["demo"], epochs=0), "epochs must be at least 1; got 0"),
        (lambda: varied(EXPERIMENTS["demo"], (0.1, -1.0)), "positive; got 0.1, -1"),
        (lambda: variation.rates_of("0.1;0.2"), "got '0.1;0.2'"),
    ],
)
def test_a_wrong_variation_is_told(call: Callable[[], object], message: str):
    with pytest.raises(UserError, match=message):
        call()


def test_a_data_set_and_its_split_have_one_rate(tmp_path: Path):
    runs = [run for run in EXPERIMENTS["vgg-tune"].runs() if run.method == "OLM"]
    for run in runs:
        best = 0.05 if run.dataset == "cifar10-tune" else 0.1
        write_record(tmp_path / "vgg-tune", tried(run, 10 + abs(run.lr - best)))
    chosen = planned(EXPERIMENTS["vgg"], tmp_path, ["method=OLM"]).runs
    assert {(run.dataset, run.lr) for run in chosen} == {("cifar10", 0.05), ("cifar100", 0.1)}
    assert len(chosen) == 10


def kind(run: Run) -> tuple[object, ...]:
    return run.method, run.method_args, run.optimizer


@pytest.mark.parametrize("name", FULL)
def test_a_synthetic_likeness_says_so_and_its_data_is_at_hand(name: str):
    entry = experiment(f"{name}-synthetic")
    runs, like = entry.runs(), EXPERIMENTS[name].runs()
    assert {run.experiment for run in runs} == {f"{name}-synthetic"}
    for run in runs:
        assert run.dataset.endswith("-synthetic")
        assert run.dataset in DATASETS
        assert run.epochs <= 3
    assert {kind(run) for run in runs} == {kind(run) for run in like}
    assert "synthetic" in entry.title
    assert "synthetic" in entry.budget
    assert entry.rates_from == (f"{EXPERIMENTS[name].rates_from}-synthetic" if EXPERIMENTS[name].rates_from else "")


def test_synthetic_networks_are_small_but_for_their_cost():
    small = [run.model_arguments for run in experiment("wrn-synthetic").runs() if run.model == "wide-resnet"]
    assert small == [{"depth": 16, "width": 1}] * 12
    assert all(not run.model_arguments for run in experiment("cost-synthetic").runs())


def test_ids_of_synthetic_likenesses_are_distinct():
    ids = [run.id for name in FULL for run in experiment(f"{name}-synthetic").runs()]
    assert len(set(ids)) == len(ids)


def test_wrong_names_are_told():
    with pytest.raises(UserError, match=r"experiment must be one of demo, .*; got 'lenet-synthetic'"):
        experiment("lenet-synthetic")
    with pytest.raises(UserError, match=r"vgg-5k .*synthetic"):
        synthetic_of(EXPERIMENTS["vgg-5k"])


def test_an_experiment_is_a_value():
    entry = EXPERIMENTS["demo"]
    assert isinstance(entry, Experiment)
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.name = "other"  # pyright: ignore[reportAttributeAccessIssue]
