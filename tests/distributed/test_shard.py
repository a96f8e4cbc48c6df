"""Sharded training gives what one process gives, and gathers orthonormal rows only."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

import orthonorm as on
from on_ranks import networks, sharded
from on_ranks.pool import Pool
from orthogonal_layers import free, weight

pytestmark = pytest.mark.fsdp2


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor], atol: float) -> None:
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, rtol=0, atol=atol, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("opted", [False, True], ids=["fully_shard", "shard_"])
def test_sharded_training_is_training_on_one_process(ranks: Pool, world: int, opted: bool):
    model = networks.mixed()
    networks.train(model, networks.sgd(model), networks.mixed_data())
    for state, _, shape in ranks.run(world, sharded.train_mixed, opted):
        assert_same(state, networks.plain_state(model), 1e-6)
        assert shape == (12 // world, 12)


@pytest.mark.parametrize("wrapped", [(), ("attention", "lstm")], ids=["whole", "each"])
def test_layers_that_read_their_weights_on_the_side_are_trained_sharded(ranks: Pool, wrapped: tuple[str, ...]):
    model = networks.tokens()
    losses = networks.train(model, networks.sgd(model), networks.mixed_data())
    (state, half), (same_state, other_half) = ranks.run(2, sharded.train_tokens, wrapped)
    assert_same(state, networks.plain_state(model), 1e-6)
    assert_same(same_state, state, 0.0)
    assert [(a + b) / 2 for a, b in zip(half, other_half, strict=True)] == pytest.approx(losses, abs=1e-6)


# Groups that no border cuts, that one cuts, ranks without a row, ranks with rows and without a group.
UNEVEN = {
    "whole groups": ((6, 8, 8, 3), 2, 4),
    "the last rank has fewer rows": ((6, 7, 7, 3), 4, 2),
    "borders cut groups": ((6, 10, 7, 3), 4, 2),
    "a group across three ranks": ((9, 8, 8, 3), 7, 4),
    "ranks without rows": ((6, 5, 4, 3), 2, 4),
    "ranks without a group": ((9, 7, 7, 3), None, 3),
}


@pytest.mark.parametrize(("widths", "group_size", "world"), UNEVEN.values(), ids=UNEVEN)
def test_uneven_shards_change_nothing(ranks: Pool, widths: tuple[int, ...], group_size: int, world: int):
    model = networks.mlp(widths, group_size=group_size)
    losses = networks.train(model, networks.sgd(model), networks.mlp_data(widths[0], widths[-1]))
    assert losses[-1] < losses[0]
    for state, _ in ranks.run(world, sharded.train_mlp, widths, group_size, True):
        assert_same(state, networks.plain_state(model), 1e-6)


@pytest.mark.parametrize("opted", [False, True], ids=["fully_shard", "shard_"])
def test_adam_and_clipped_gradients_are_those_of_one_process(ranks: Pool, opted: bool):
    wanted, wanted_norms = sharded.adam(opted)
    assert min(wanted_norms) > 0.15
    for state, norms in ranks.run(3, sharded.adam, opted):
        assert norms == pytest.approx(wanted_norms, abs=1e-6)
        assert_same(state, wanted, 1e-6)


def test_whole_groups_are_gathered_once_as_rows_of_w_and_never_as_v(ranks: Pool):
    for counts, gathered in ranks.run(4, sharded.collectives, 4):
        assert {name: count for name, count in counts.items() if count} == {
            "c10d._allgather_base_": 1,
            "c10d._reduce_scatter_base_": 1,
        }
        assert [name for name, _, _ in gathered] == ["allgather", "reduce_scatter"]


def test_fully_shard_gathers_the_other_parameters_only(ranks: Pool):
    model = networks.mlp((16, 16, 16, 3), group_size=4, scale=False)
    V = sum(p.numel() for name, p in model.named_parameters() if name.endswith("original"))
    rest = sum(p.numel() for p in model.parameters()) - V
    for gathered in ranks.run(4, sharded.gathered_in_training, 4):
        entries = [entries for name, _, entries in gathered if name == "allgather"]
        assert entries.count(V) == 1
        assert rest <= sum(entries) - V < rest + 4 * 8  # a few tensors, each padded to four equal shards


def test_only_rows_beyond_a_border_are_sent(ranks: Pool):
    # Two weights of 16 rows in groups of 6, 5, 5, with borders at 4, 8, 12: of the rows 0-5 | 6-10 | 11-15, ranks 0, 2
    # and 3 hold most (ranks 1 and 2 have 2 and 3 of the second), so 2 + 2 + 1 rows of 16 entries travel in each.
    for counts, gathered in ranks.run(4, sharded.collectives, 6):
        assert [name for name, _, _ in gathered] == ["alltoall", "allgather", "reduce_scatter", "alltoall"]
        assert sum(counts.values()) == 4
    sent = sum(entries for _, found in ranks.run(4, sharded.collectives, 6) for name, _, entries in found[:1])
    assert sent >= 2 * 5 * 16


def test_the_mixed_precision_policy_is_respected(ranks: Pool):
    model = networks.mlp((6, 10, 8, 3), group_size=4, scale=False)
    wanted = weight(model[0]).detach()
    x, y = networks.mlp_data(6, 3)
    torch.nn.functional.cross_entropy(model(x), y).backward()
    gradient = free(model[0]).grad
    assert gradient is not None
    for found in ranks.run(2, sharded.mixed_precision):
        assert found["V"] == torch.float32
        assert found["W"].dtype == torch.bfloat16
        # W is that of the float32 V, rounded once: of a V rounded first it would differ.
        assert torch.equal(found["W"], wanted.bfloat16())
        assert ("allgather", torch.bfloat16) in found["exchanged"]
        assert ("reduce_scatter", torch.float32) in found["exchanged"]
        assert torch.dist(found["grad"], gradient) < 0.05 * gradient.norm()


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_checkpoint_saved_on_four_ranks_goes_on_on_fewer(ranks: Pool, tmp_path: Path, world: int):
    wanted = ranks.run(4, sharded.save, str(tmp_path))[0]
    for state in ranks.run(world, sharded.load, str(tmp_path)):
        assert_same(state, wanted, 1e-6)


def test_outside_of_a_forward_a_weight_is_whole_or_refused(ranks: Pool):
    model = networks.mlp((6, 10, 8, 3), group_size=4, scale=False)
    scaled = networks.mlp((6, 10, 8, 3), group_size=4)
    for found in ranks.run(2, sharded.outside):
        torch.testing.assert_close(found["weight"], weight(model[0]).detach(), rtol=0, atol=1e-6)
        torch.testing.assert_close(found["evaluated"], model(networks.mlp_data(6, 3)[0]), rtol=0, atol=1e-6)
        assert found["errors"].keys() == on.orthogonality_error(model).keys()
        assert max(found["errors"].values()) < 1e-6
        assert found["ours"] == [f"{i}.parametrizations.weight.original" for i in (0, 2)]
        assert found["fold"].startswith("ValueError: 0.weight is sharded among ranks (DTensor), and a folded model")
        for refused in ("read", "inspect"):
            assert found[refused].startswith(
                "TypeError: 0.weight is sharded among ranks (DTensor), and rows of a group"
            )
        assert found["renormalize"].startswith(
            "ValueError: 0.weight is sharded among ranks (DTensor). Call renormalize_ before"
        )
        torch.testing.assert_close(found["scaled"], weight(scaled[0]).detach(), rtol=0, atol=1e-6)
        # The last columns are the norm of V and the range of the scale, over all ranks.
        assert [line.split()[-4:] for line in found["report"].splitlines()] == [
            line.split()[-4:] for line in str(on.inspect(scaled)).splitlines()
        ]
        assert found["none"].startswith("ValueError: this FSDPSequential has no sharded V")


WRONG_CALLS = {
    "no mesh": "TypeError: mesh must be a DeviceMesh; got ProcessGroup",
    "two dimensions": "ValueError: shard_ shards rows over a mesh of one dimension; got one of 2",
    "plain": "ValueError: this Linear has no orthogonal weight. Call orthogonalize_ before shard_",
    "transposed only": "ValueError: no orthogonal weight of this model can be sharded on rows",
    "twice": "ValueError: 0.weight is divided among ranks already",
}


def test_wrong_calls_say_the_rule_and_the_cure(ranks: Pool):
    for found in ranks.run(2, sharded.refusals):
        assert found.keys() == WRONG_CALLS.keys()
        for name, message in WRONG_CALLS.items():
            assert found[name].startswith(message), (name, found[name])
