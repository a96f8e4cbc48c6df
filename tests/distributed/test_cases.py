"""The row of the reports that users of orthogonal weights filed which needs several processes, by its number."""

import pytest
import torch

from on_ranks import cases
from on_ranks.pool import Pool


@pytest.mark.parametrize("world", [2, 4])
@pytest.mark.parametrize(
    ("setup", "group_size"),
    [
        pytest.param("fully_shard", 5, marks=pytest.mark.fsdp2),
        pytest.param("shard_", 5, marks=pytest.mark.fsdp2),
        ("colwise", 2),
        ("rowwise", 2),
    ],
    ids=["fully_shard", "shard_", "colwise", "rowwise"],
)
def test_case_17_a_sharded_weight_is_the_unsharded_one(ranks: Pool, setup: str, group_size: int, world: int):
    model = cases.networks.mlp((7, 24, 24, 3), group_size=group_size)
    layer = model[2] if setup == "rowwise" else model[0]
    W, output = cases.weight(layer).detach(), model(cases.networks.mlp_data(7, 3)[0])
    for found, computed in ranks.run(world, cases.first_layer, setup, group_size):
        torch.testing.assert_close(found, W, rtol=0, atol=1e-6)
        torch.testing.assert_close(computed, output.detach(), rtol=0, atol=1e-6)


def test_case_17_what_would_be_another_answer_is_refused_by_name(ranks: Pool):
    for found in ranks.run(2, cases.refusals):
        assert found["converted after sharding"].startswith("TypeError: weight of Linear is sharded among ranks")
        assert "Convert the model (orthogonalize_) before sharding it" in found["converted after sharding"]
        assert found["a sharded V read outside"].startswith("TypeError: weight of OrthogonalLinear is sharded among")
        assert found["a checkpoint of shards"].startswith("TypeError: weight of OrthogonalLinear is sharded among")
