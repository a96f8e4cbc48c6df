"""The transformation divided among data parallel ranks gives what one process gives."""

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from on_ranks import data_parallel, networks
from on_ranks.pool import Pool
from orthonorm.distributed import plan

WORLDS = [1, 2, 3, 4]


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor], atol: float) -> None:
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, rtol=0, atol=atol, msg=lambda text, key=key: f"{key}: {text}")


def assert_moved(before: dict[str, Tensor], after: dict[str, Tensor]) -> None:
    """What did not train shows nothing."""
    for key, value in before.items():
        if key.endswith("original"):
            assert (after[key] - value).abs().max() > 1e-3, key


def trained(dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    model = networks.mixed(dtype)
    start = networks.plain_state(model)
    networks.train(model, networks.sgd(model), networks.mixed_data())
    assert_moved(start, networks.plain_state(model))
    return networks.plain_state(model)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("divided", [False, True], ids=["unchanged", "divided"])
def test_training_on_ranks_is_training_on_one_process(ranks: Pool, world: int, divided: bool):
    wanted = trained()
    for state, _ in ranks.run(world, data_parallel.train_mixed, divided):
        assert_same(state, wanted, 1e-6)


@pytest.mark.parametrize("world", [2, 3])
def test_in_float64_only_the_order_of_sums_differs(ranks: Pool, world: int):
    wanted = trained(torch.float64)
    for state, _ in ranks.run(world, data_parallel.train_mixed, True, True, torch.float64, 1e-6):
        assert_same(state, wanted, 1e-13)


def test_the_replicas_stay_equal_bit_for_bit(ranks: Pool):
    states = [state for state, _ in ranks.run(4, data_parallel.train_mixed, True)]
    for state in states[1:]:
        assert_same(state, states[0], 0.0)


def test_it_is_right_where_data_parallel_training_averages_as_well(ranks: Pool):
    wanted = trained()
    for state, _ in ranks.run(3, data_parallel.train_mixed, True, False):
        assert_same(state, wanted, 1e-6)


def test_ranks_may_share_the_work_in_smaller_groups(ranks: Pool):
    wanted = trained()
    for state in ranks.run(4, data_parallel.train_in_pairs):
        assert_same(state, wanted, 1e-6)


@pytest.mark.parametrize("world", [2, 4])
def test_the_weights_are_those_of_one_process_bit_for_bit(ranks: Pool, world: int):
    wanted = data_parallel.first_weights()
    for seen in ranks.run(world, data_parallel.first_weights):
        assert_same(seen, wanted, 0.0)


STEPS = ["plain", "buckets", "penalty before", "penalty after", "two forwards", "accumulated", "checkpointed"]


@pytest.mark.parametrize("what", [*STEPS, "cached together", "copied", "folded"])
def test_gradients_are_those_of_one_process(ranks: Pool, what: str):
    wanted = data_parallel.gradients(what)
    for found in ranks.run(3, data_parallel.gradients, what):
        assert_same(found, wanted, 1e-6)


def test_one_rank_may_evaluate_inspect_and_fold_by_itself(ranks: Pool):
    first, second = ranks.run(2, data_parallel.alone)
    evaluated, errors, folded, copied, after = first
    assert max(errors.values()) < 1e-6
    for output in (folded, copied, after):
        torch.testing.assert_close(output, evaluated, rtol=0, atol=1e-6)
    assert torch.equal(second[0], after)


WRONG_CALLS = {
    "plain model": "ValueError: this Linear has no orthogonal weight. Call orthogonalize_ before divide_",
    "not a module": "TypeError: model must be a torch.nn.Module; got int",
    "divided twice": "ValueError: 0.weight is divided among ranks already. Call divide_ once",
    "meta": "ValueError: 0.weight is on the meta device, which holds no values. Call to_empty(device=...)",
    "no size": "ValueError: bucket_mib must be above 0, or inf for one collective; got 0.0",
    "a size that is no number": "TypeError: bucket_mib must be a number of MiB; got '25'",
    "another group": "ValueError: divide_ must be called on the ranks of its process group; rank",
    "other models": "ValueError: the ranks have different orthogonal weights or groups",
    "second derivatives": "RuntimeError: trying to differentiate twice a function that was marked with",
}


def test_wrong_calls_say_the_rule_and_the_cure(ranks: Pool):
    for found in ranks.run(2, data_parallel.refusals):
        assert found.keys() == WRONG_CALLS.keys()
        for name, message in WRONG_CALLS.items():
            assert found[name].startswith(message), name


def test_without_a_process_group_the_cure_is_to_make_one(ranks: Pool):
    (found,) = ranks.run(1, data_parallel.without_group, group=False)
    assert found.startswith("ValueError: divide_ shares work among processes, and no process group is initialized here")


def test_orthonormal_columns_are_refused_with_the_cure(ranks: Pool):
    model = on.orthogonalize_(nn.Sequential(nn.Linear(4, 12), nn.Linear(12, 3)), on.OrthogonalConfig(tall="columns"))
    with pytest.raises(ValueError, match=r"^0\.weight has orthonormal columns .*tall='groups'"):
        plan(model, 2)
    for found in ranks.run(1, data_parallel.refused_columns):
        assert len(found) == 3
        assert all(message.startswith("ValueError: 0.weight has orthonormal columns") for message in found)
