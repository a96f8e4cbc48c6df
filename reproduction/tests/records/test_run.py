"""`Run`: ids that stay, a JSON form that comes back, and wrong fields refused."""

import dataclasses
import json
import pickle
from typing import Any

import pytest

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.experiments import EXPERIMENTS, select
from orthonorm_paper.experiments.omdsm import demo, omdsm, omdsm_5k
from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import Halve, Steps

FULL = Run(
    experiment="full",
    dataset="mnist",
    model="mlp",
    model_args={"width": 50, "hidden_layers": 4, "dropout": 0.5},
    method="OLM",
    method_args={"group_size": 64},
    optimizer="adam",
    momentum=0.9,
    nesterov=True,
    weight_decay=5e-4,
    restart_momentum=True,
    lr=0.1,
    schedule=Steps((60, 120, 160), 0.2),
    epochs=200,
    batch_size=128,
    augment="flip-crop",
    precision="bf16-mixed",
    seed=3,
    loss_limit=50.0,
)

# An id that changed would orphan every record made so far: change these only with a new schema.
GOLDEN = {
    "demo": (demo, "plain-mlp8-b256-lr0.1-s0-b49869eb", "OLM-balanced-mlp8-b256-lr0.5-s2-33502a78"),
    "omdsm": (omdsm, "plain-mlp4-b1024-lr0.0005-s0-c25c65e4", "OLM-uncentred-mlp8-b256-lr5-s4-5d40818f"),
    "omdsm-5k": (omdsm_5k, "plain-mlp4-b1024-lr0.0005-s0-39f1577c", "OLM-uncentred-mlp8-b256-lr5-s4-9c0e736e"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_ids_of_an_experiment_stay(name: str):
    runs, first, last = GOLDEN[name]
    assert [runs()[0].id, runs()[-1].id] == [first, last]


def test_the_id_of_a_run_with_every_field_stays():
    assert FULL.id == "OLM-mlp4-50-b128-lr0.1-s3-c10ba1e5"


def test_ids_are_distinct_within_and_across_experiments():
    ids = [run.id for entry in EXPERIMENTS.values() for run in entry.runs()]
    assert len(set(ids)) == len(ids)


# Seeds times methods, groups or networks times rates, and so on, as the paper has them.
NUMBERS = {
    "demo": 3 * 4 * 2,
    "omdsm": 3 * 3 * 5 * 15 * 9,
    "omdsm-5k": 3 * 3 * 5 * 15 * 9,
    "omdsm-5k-constant": 5 * 11 * 9,
    # A scan by one seed, and nine more at ten of its cells.
    "headline": 30 + 9 * 10,
    "headline-avx2": 10 * 10,
    "ablation-mlp-5k": 5 * 11 * 5,
    "ablation-adam-5k": 5 * 5 * 6,
    "ablation-vgg-5k": 5 * 10 * 9,
    "ablation-rows-5k": 5 * 3 * 5,
    "pie-tune": 11 * 5 + 5 * 5 + 5 * 4,
    "pie-groups": 5 * 11 * 5,
    "pie-batchnorm": 5 * 5 * 5,
    "pie-adam": 5 * 5 * 4,
    "vgg-tune": 2 * 9 * 3,
    "vgg": 2 * 5 * 9 * 3,
    "inception": 2 * 5 * 5,
    "wrn": 2 * 5 * 7,
    "wrn-shortcuts": 2 * 5,
    "cost": 3 + 4,
    "imagenet-alexnet": 2,
    "imagenet-inception": 2,
    "imagenet-resnet34": 2,
    "imagenet-preresnet34": 2,
    "inception-cited-order": 2 * 5 * 3,
    "inception-own-statistics": 5 * 3,
    **{
        f"imagenet-{name}-{option}": 2
        for name in ("alexnet", "inception", "resnet34", "preresnet34")
        for option in ("colour", "steps")
    },
    "pie-5k": 5 * 11 * 6,
    "vgg-5k": 5 * 8 * 9,
    "inception-5k": 5 * 3 * 5,
    "wrn-5k": 5 * 5 * 5,
    "copying": 3 * 2 * 5 * 5,
    "rows-5k": 5 * 2 * 5 * 6,
}


def test_the_experiments_have_so_many_runs():
    assert {name: len(entry.runs()) for name, entry in EXPERIMENTS.items()} == NUMBERS


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Run)])
def test_every_field_decides_the_id(field: str):
    changed: dict[str, Any] = {
        "model_args": {"hidden_layers": 4},
        "method_args": {},
        "schedule": Halve(7),
        "nesterov": False,
        "restart_momentum": False,
        "optimizer": "sgd",
        "precision": "32-true",
    }
    value = getattr(FULL, field)
    other = changed.get(field, value + "x" if isinstance(value, str) else value)
    other = other * 2 if isinstance(other, (int, float)) and not isinstance(other, bool) else other
    assert dataclasses.replace(FULL, **{field: other}).id != FULL.id


def test_a_field_at_its_default_is_not_in_the_canonical_form():
    keys = json.loads(demo()[0].canonical()).keys()
    assert keys == {"experiment", "dataset", "model", "model_args", "method", "lr", "epochs", "batch_size"}


@pytest.mark.parametrize("run", [FULL, demo()[5]], ids=["full", "demo"])
def test_json_gives_the_run_back(run: Run):
    text = json.dumps(run.to_json(), allow_nan=False)
    assert Run.from_json(json.loads(text)) == run


def test_arguments_are_the_same_as_a_mapping_or_as_pairs_in_any_order():
    pairs = dataclasses.replace(FULL, model_args=(("hidden_layers", 4), ("width", 50), ("dropout", 0.5)))
    assert pairs == FULL
    assert hash(pairs) == hash(FULL)


def test_a_run_can_be_sent_to_a_process():
    assert pickle.loads(pickle.dumps(FULL)) == FULL


def test_a_whole_number_in_json_is_a_rate():
    assert Run.from_json(FULL.to_json() | {"lr": 1}).lr == 1.0


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("unknown field", {"speed": 1}, "speed is unknown"),
    ("empty name", {"method": ""}, "method .* 1 character; got ''"),
    ("number as name", {"dataset": 5}, "dataset .* string; got 5"),
    ("negative rate", {"lr": -0.1}, "lr .* 0; got -0.1"),
    ("infinite rate", {"lr": float("inf")}, "lr .* finite number; got inf"),
    ("text as rate", {"lr": "0.1"}, "lr .* number; got '0.1'"),
    ("true as rate", {"lr": True}, "lr .* number; got True"),
    ("no epoch", {"epochs": 0}, "epochs .* 1; got 0"),
    ("half an epoch", {"epochs": 1.5}, "epochs .* integer; got 1.5"),
    ("empty batch", {"batch_size": 0}, "batch_size .* 1; got 0"),
    ("negative seed", {"seed": -1}, "seed .* 0; got -1"),
    ("number as switch", {"nesterov": 1}, "nesterov .* boolean; got 1"),
    ("optimizer", {"optimizer": "lion"}, "optimizer .* 'sgd' or 'adam'; got 'lion'"),
    ("precision", {"precision": "8-true"}, "precision .*'32-true', .* got '8-true'"),
    ("schedule", {"schedule": {"kind": "cosine"}}, "schedule .* 'steps'; got {'kind': 'cosine'}"),
    ("arguments", {"model_args": 3}, "model_args .* mapping of names to values; got 3"),
    ("nested arguments", {"model_args": {"a": [1]}}, r"model_args .* got 'a': \[1\]"),
    ("infinite argument", {"model_args": {"a": float("nan")}}, "model_args .* got 'a': nan"),
]


@pytest.mark.parametrize(("change", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_input_says_what_was_got(change: dict[str, Any], message: str):
    with pytest.raises(UserError, match=message):
        Run.from_json(FULL.to_json() | change)


def test_a_missing_field_is_named():
    data = FULL.to_json()
    del data["lr"]
    with pytest.raises(UserError, match="lr is missing"):
        Run.from_json(data)


def test_selection_keeps_the_runs_with_the_wanted_values():
    chosen = select(omdsm_5k(), ["method=OLM,plain", "hidden_layers=8", "batch_size=256", "seed=0", "lr=1,0.50"])
    assert [(run.method, run.lr) for run in chosen] == [("plain", 0.5), ("plain", 1), ("OLM", 0.5), ("OLM", 1)]
    assert {dict(run.model_args)["hidden_layers"] for run in chosen} == {8}


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("method", "takes FIELD=VALUE"),
        ("depth=4", "the runs have no depth; .*hidden_layers"),
        ("method=SGD", "leaves no run; method is OLM-balanced, plain, plain-he, plain-orthogonal"),
        ("lr=fast", "leaves no run; lr is 0.1, 0.5"),
    ],
)
def test_a_wrong_selection_lists_what_there_is(only: str, message: str):
    with pytest.raises(UserError, match=message):
        select(demo(), [only])
