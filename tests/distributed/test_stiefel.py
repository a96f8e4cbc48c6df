"""Weights on the Stiefel manifold, replicated or sharded, go the way they go in one process."""

import pytest
import torch

from on_ranks import stiefel
from on_ranks.pool import Pool
from orthogonal_layers import error_of_rows, weight

# Ranks, and rows of the two weights on the manifold: equal shards, and a last one of fewer rows.
ROWS = [(1, 16, 12), (2, 16, 7), (3, 12, 11), (4, 16, 16)]


@pytest.mark.parametrize(("world", "first", "second"), ROWS, ids=[f"{world} ranks" for world, _, _ in ROWS])
@pytest.mark.parametrize("setup", ["data parallel", pytest.param("fully_shard", marks=pytest.mark.fsdp2)])
def test_training_on_ranks_is_training_on_one_process(ranks: Pool, setup: str, world: int, first: int, second: int):
    wanted, _ = stiefel.train("one process", first, second)
    assert (wanted["0.weight"] - weight(stiefel.network(first, second)[0])).abs().max() > 1e-2
    for state, collectives in ranks.run(world, stiefel.train, setup, first, second):
        assert collectives == {}
        assert error_of_rows(state["0.weight"], (4,) * (first // 4)) < 2e-6
        for key, value in wanted.items():
            torch.testing.assert_close(state[key], value, rtol=0, atol=1e-6)


@pytest.mark.parametrize("setup", ["data parallel", pytest.param("fully_shard", marks=pytest.mark.fsdp2)])
@pytest.mark.parametrize("name", ["Landing", "StiefelMuon"])
def test_so_are_the_other_optimizers_of_one_buffer(ranks: Pool, setup: str, name: str):
    wanted, _ = stiefel.train("one process", 12, 11, name)
    assert (wanted["0.weight"] - weight(stiefel.network(12, 11)[0])).abs().max() > 1e-2
    for state, collectives in ranks.run(3, stiefel.train, setup, 12, 11, name):
        assert collectives == {}
        for key, value in wanted.items():
            # A direction of Muon depends on the least singular values of a gradient, and on their rounding.
            torch.testing.assert_close(state[key], value, rtol=0, atol=1e-6 if name == "Landing" else 1e-4)


SAID = {
    "cut": (
        "ValueError: a sharded weight on the manifold needs whole groups of rows on each rank; 2 ranks hold 3 rows "
        "each of a weight of shape (6, 8), which is 6 orthonormal rows of length 8. Use group_size=3, 1, or"
    ),
    "cut groups": "ValueError: a sharded weight on the manifold needs whole groups",
    "columns": "TypeError: a sharded weight on the manifold must be sharded on its rows",
    "Adam": "TypeError: this optimizer has one number for each group",
    "cut for Landing": "ValueError: a sharded weight on the manifold needs whole groups",
    "cut for Muon": "ValueError: a sharded weight on the manifold needs whole groups",
    "fits": "nothing was raised",
    "replicated": "nothing was raised",
}


def test_a_weight_with_a_cut_group_is_refused(ranks: Pool):
    for found in ranks.run(2, stiefel.refusals):
        assert found.keys() == SAID.keys()
        for name, message in SAID.items():
            assert found[name].startswith(message), (name, found[name])
