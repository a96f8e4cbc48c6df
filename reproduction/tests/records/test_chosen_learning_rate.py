"""Selection of a learning rate by validation error: the lowest mean, ties, and what is refused."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.chosen_learning_rate import Key, candidates, choose, key_of, selected
from orthonorm_paper.records.files import End, Epoch, Header, Record
from orthonorm_paper.records.run import Run

RUN = Run(
    experiment="vgg-tune", dataset="cifar10-tune", model="vgg", method="OLM", lr=0.1, epochs=2, batch_size=256
)  # fmt: skip


def tried(error: float | None, *, loss: float = 1.0, diverged: bool = False, **fields: Any) -> Record:
    """Record whose validation error ends here; the epoch before it was better than any end."""
    run = dataclasses.replace(RUN, **fields)
    epochs = (
        Epoch.model_construct(epoch=1, test_error=0.0, test_loss=0.0),
        Epoch.model_construct(epoch=2, test_error=error, test_loss=loss),
    )
    end = End.model_construct(outcome="diverged" if diverged else "completed")
    return Record(Header.model_construct(run=run), epochs, end)


def grid(errors: dict[float, float], **fields: Any) -> list[Record]:
    return [tried(error, lr=lr, **fields) for lr, error in errors.items()]


def of_all(records: list[Record]) -> dict[Key, float]:
    """What is selected where every run is recorded."""
    return selected(records, [record.run for record in records])


def chosen(records: list[Record]) -> dict[tuple[object, object], float]:
    """... by data set and method."""
    return {(key[0], key[4]): lr for key, lr in of_all(records).items()}


def test_the_lowest_validation_error_of_the_last_epoch_is_chosen_for_each_data_set_and_method():
    records = [
        *grid({0.01: 30.0, 0.05: 20.0, 0.1: 25.0}),
        *grid({0.01: 12.0, 0.05: 14.0, 0.1: 13.0}, method="plain"),
        *grid({0.01: 61.0, 0.05: 60.0, 0.1: 59.0}, dataset="cifar100-tune"),
    ]
    assert chosen(records) == {("cifar10", "OLM"): 0.05, ("cifar10", "plain"): 0.01, ("cifar100", "OLM"): 0.1}


def test_the_order_of_the_records_does_not_matter():
    records = grid({0.01: 30.0, 0.05: 20.0, 0.1: 20.0})
    assert chosen(records) == chosen(records[::-1]) == {("cifar10", "OLM"): 0.05}


def test_the_mean_error_over_the_seeds_decides():
    # Means 22 and 21: the lowest single error, 12, and the lower loss are at the rate that is not chosen.
    records = [
        *(tried(error, lr=0.05, loss=0.5, seed=seed) for seed, error in enumerate((12.0, 32.0))),
        *(tried(error, lr=0.1, seed=seed) for seed, error in enumerate((20.0, 22.0))),
    ]
    assert chosen(records) == {("cifar10", "OLM"): 0.1}


def test_equal_errors_are_told_apart_by_the_loss_and_then_by_the_smaller_rate():
    assert chosen([tried(20.0, lr=0.01, loss=0.9), tried(20.0, lr=0.1, loss=0.8)]) == {("cifar10", "OLM"): 0.1}
    assert chosen([tried(20.0, lr=0.1), tried(20.0, lr=0.01)]) == {("cifar10", "OLM"): 0.01}


def test_a_run_that_diverged_is_never_chosen_whatever_it_had_reached():
    records = [
        *(tried(1.0, lr=0.1, seed=seed, diverged=seed == 1) for seed in (0, 1)),
        *(tried(50.0, lr=0.05, seed=seed) for seed in (0, 1)),
    ]
    assert chosen(records) == {("cifar10", "OLM"): 0.05}


def test_arguments_of_model_and_method_and_the_optimizer_tell_combinations_apart():
    fields: list[dict[str, Any]] = [
        {"method_args": {"group_size": 16}},
        {"method_args": {"group_size": 64}},
        {"method": "plain", "model_args": {"batch_norm": True}},
        {"optimizer": "adam"},
    ]
    errors = ({0.1: 3.0, 0.5: 2.0}, {0.1: 2.0, 0.5: 3.0}, {0.1: 4.0, 0.5: 5.0}, {0.1: 2.0, 0.5: 1.0})
    records = [one for given, its in zip(fields, errors, strict=True) for one in grid(its, **given)]
    assert list(of_all(records).values()) == [0.5, 0.1, 0.1, 0.5]


def test_a_data_set_counts_under_the_name_of_the_one_it_was_split_from():
    names = ("pie-tune", "cifar10-tune-synthetic", "mnist-5k-rgb")
    found = [key_of(dataclasses.replace(RUN, dataset=name))[0] for name in names]
    assert found == ["pie", "cifar10-synthetic", "mnist-5k-rgb"]


def test_records_of_other_runs_are_left_out():
    other = tried(0.5, lr=0.1)
    records = grid({0.01: 1.0, 0.05: 2.0})
    assert list(selected([*records, other], [record.run for record in records]).values()) == [0.01]


def test_candidates_come_by_rising_rate_and_nothing_finite_is_no_choice():
    groups = candidates(grid({0.1: 1.0, 0.01: 2.0, 0.05: 3.0}))
    assert [cell.run.lr for cell in groups[key_of(RUN)]] == [0.01, 0.05, 0.1]
    assert choose([]) is None
    assert choose(candidates([tried(None)])[key_of(RUN)]) is None


def test_a_combination_that_diverged_at_every_rate_has_none_and_blocks_no_other():
    lost = [tried(1.0, lr=lr, method="OLM_var", diverged=True) for lr in (0.1, 0.5)]
    assert chosen([*lost, *grid({0.1: 2.0, 0.5: 1.0})]) == {("cifar10", "OLM"): 0.5}


FULL = grid({0.01: 1.0, 0.05: 2.0}) + grid({0.01: 1.0, 0.05: 2.0}, method="plain")
LACKING = FULL[:3]
WANTED = [record.run for record in FULL]

WRONG: list[tuple[str, Callable[[], object], str]] = [
    ("nothing", lambda: selected([], []), "nothing is recorded"),
    ("nothing of the runs", lambda: selected([], WANTED), f"4 runs are missing: {FULL[0].run.id}"),
    (
        "a rate missing from one method",
        lambda: selected(LACKING, WANTED),
        f"no learning rate to select: 1 run is missing: {FULL[3].run.id}",
    ),
    (
        "a rate missing from all",
        lambda: selected(FULL, [*WANTED, dataclasses.replace(RUN, lr=0.1)]),
        f"1 run is missing: {dataclasses.replace(RUN, lr=0.1).id}. Run",
    ),
    ("many", lambda: selected([], many(7)), "7 runs are missing: .* and 2 more"),
    (
        "another difference",
        lambda: of_all([*FULL, tried(1.0, lr=0.01, batch_size=128)]),
        "runs of dataset cifar10, optimizer sgd, model vgg, method OLM differ in batch_size too",
    ),
    (
        "all diverged",
        lambda: of_all([tried(1.0, lr=lr, diverged=True) for lr in (0.1, 0.5)]),
        r"no learning rate to select for dataset cifar10, .*, method OLM: every one diverged \(0.1, 0.5\)",
    ),
]


def many(count: int) -> Iterable[Run]:
    return [dataclasses.replace(RUN, seed=seed) for seed in range(count)]


@pytest.mark.parametrize(("call", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_cannot_be_selected_is_refused(call: Callable[[], Any], message: str):
    with pytest.raises(UserError, match=message.replace("+", "[+]")):
        call()
