"""Schedules against the rates that the paper's README gives."""

import dataclasses
import json
import math
from typing import Any

import pytest

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import (
    Constant,
    Exponential,
    Halve,
    Schedule,
    Steps,
    describe,
    rate,
)

CIFAR_VGG = Exponential(final=0.01, epochs=100, every=2)
IMAGENET = Exponential(final=0.01, epochs=50, ahead=1)
RUN = Run(experiment="tests", dataset="tiny", model="mlp", method="plain", lr=0.1, epochs=2, batch_size=8)
ALL = [Constant(), Halve(40), CIFAR_VGG, IMAGENET, Steps((60, 120, 160), 0.2)]


def test_mnist_halves_after_forty_of_eighty_epochs():
    rates = [rate(Halve(40), 0.5, epoch) for epoch in range(80)]
    assert rates == [0.5] * 40 + [0.25] * 40


def test_pie_stays_constant():
    assert {rate(Constant(), 0.05, epoch) for epoch in range(80)} == {0.05}


def test_vgg_decays_after_every_even_epoch_and_ends_at_the_98th_step():
    rates = [rate(CIFAR_VGG, 0.1, epoch) for epoch in range(100)]
    # "After every even epoch e (from 1) the rate becomes lr0 * 0.01^(e/100)."
    expected = [0.1 * 0.01 ** ((number - 1) // 2 * 2 / 100) for number in range(1, 101)]
    assert rates == pytest.approx(expected, rel=1e-12)
    assert rates[0] == rates[1] == 0.1
    assert rates[-1] == rates[-2] == pytest.approx(0.1 * 0.01**0.98, rel=1e-12)


def test_imagenet_begins_one_step_down_and_ends_at_a_hundredth():
    rates = [rate(IMAGENET, 0.1, epoch) for epoch in range(50)]
    assert rates == pytest.approx([0.1 * 100 ** (-e / 50) for e in range(1, 51)], rel=1e-12)


def test_wrn_steps_at_its_three_milestones():
    rates = [rate(Steps((60, 120, 160), 0.2), 0.1, epoch) for epoch in range(200)]
    levels = [0.1] * 60 + [0.02] * 60 + [0.004] * 40 + [0.0008] * 40
    assert rates == pytest.approx(levels, rel=1e-12)


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: s.kind + str(getattr(s, "ahead", "")))
def test_json_gives_the_schedule_back(schedule: Schedule):
    run = dataclasses.replace(RUN, schedule=schedule)
    assert Run.from_json(json.loads(json.dumps(run.to_json()))).schedule == schedule


@pytest.mark.parametrize("schedule", ALL, ids=lambda s: s.kind + str(getattr(s, "ahead", "")))
def test_the_first_rate_is_the_run_s_own_but_where_it_begins_ahead(schedule: Schedule):
    ahead = schedule == IMAGENET
    assert rate(schedule, 0.3, 0) == pytest.approx(0.3 * (0.01**0.02 if ahead else 1), rel=1e-12)


def test_a_schedule_is_described_by_its_numbers():
    assert describe(Halve(20)) == "learning rate halved every 20 epochs"
    assert describe(Steps((60, 120), 0.2)) == "learning rate times 0.2 at epochs 60, 120"


WRONG: list[tuple[str, Any, str]] = [
    ("no object", 3, "schedule .* got 3"),
    ("unknown kind", {"kind": "cosine"}, "'constant', 'halve', 'exponential', 'steps'; got {'kind': 'cosine'}"),
    ("missing field", {"kind": "halve"}, "halve.every is missing"),
    ("unknown field", {"kind": "constant", "every": 2}, "constant.every is unknown"),
    ("text for a number", {"kind": "halve", "every": "4"}, "every .* integer; got '4'"),
    ("true for a number", {"kind": "halve", "every": True}, "every .* integer; got True"),
    ("zero epochs", {"kind": "halve", "every": 0}, "every .* 1; got 0"),
    ("rising", {"kind": "exponential", "final": 1.5, "epochs": 9}, "final .* 1; got 1.5"),
    ("infinite", {"kind": "exponential", "final": math.inf, "epochs": 9}, "final .* got inf"),
    ("ahead", {"kind": "exponential", "final": 0.1, "epochs": 9, "ahead": -1}, "ahead .* 0; got -1"),
    ("no list", {"kind": "steps", "milestones": 3, "by": 0.1}, "milestones .* got 3"),
    ("falling", {"kind": "steps", "milestones": [5, 3], "by": 0.1}, r"milestones .* rising order; got \(5, 3\)"),
    ("twice", {"kind": "steps", "milestones": [5, 5], "by": 0.1}, r"milestones .* rising order; got \(5, 5\)"),
    ("growing", {"kind": "steps", "milestones": [3], "by": 1.5}, "by .* 1; got 1.5"),
    ("no milestone", {"kind": "steps", "milestones": [], "by": 0.1}, r"milestones .* got \[\]"),
    ("the zeroth", {"kind": "steps", "milestones": [0, 4], "by": 0.1}, "milestones.0 .* 1; got 0"),
]


@pytest.mark.parametrize(("data", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_wrong_input_says_what_was_got(data: Any, message: str):
    with pytest.raises(UserError, match=message):
        Run.from_json(RUN.to_json() | {"schedule": data})
