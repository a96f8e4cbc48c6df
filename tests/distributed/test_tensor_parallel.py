"""Rows or columns of a weight on each rank give the weight, and the training, of one process."""

import pytest
import torch
from torch import Tensor

from on_ranks import tensor_parallel
from on_ranks.pool import Pool

# Widths, group size, ranks: rows and columns that ranks share evenly, unevenly, and a rank with neither.
SPREAD = {
    "one rank": ((6, 8, 5, 3), 4, 1),
    "even": ((6, 8, 5, 3), 4, 2),
    "uneven": ((6, 8, 7, 3), 3, 3),
    "a rank without rows": ((6, 5, 4, 3), 1, 4),
}


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor], atol: float) -> None:
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, rtol=0, atol=atol, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("scale", [True, False], ids=["scale", "no scale"])
@pytest.mark.parametrize(("widths", "group_size", "world"), SPREAD.values(), ids=SPREAD)
def test_tensor_parallel_training_is_training_on_one_process(
    ranks: Pool, widths: tuple[int, ...], group_size: int, world: int, scale: bool
):
    wanted = tensor_parallel.train(widths, group_size, scale, torch.float32)
    for state in ranks.run(world, tensor_parallel.train, widths, group_size, scale, torch.float32):
        assert_same(state, wanted, 1e-6)


def test_in_float64_only_the_order_of_sums_differs(ranks: Pool):
    wanted = tensor_parallel.train((6, 8, 7, 3), 4, True, torch.float64)
    for state in ranks.run(2, tensor_parallel.train, (6, 8, 7, 3), 4, True, torch.float64):
        assert_same(state, wanted, 1e-13)


def test_whole_groups_of_rows_need_no_exchange(ranks: Pool):
    assert ranks.run(4, tensor_parallel.exchanged, "colwise") == [{}] * 4


def test_columns_exchange_gram_matrices_and_roots_only(ranks: Pool):
    # The mean of each row, the Gram matrices summed, the roots to all; and each of them once more in the backward.
    for counts in ranks.run(4, tensor_parallel.exchanged, "rowwise"):
        assert counts == {
            "c10d.allreduce_": 2,
            "c10d._reduce_scatter_base_": 2,
            "c10d._allgather_base_": 2,
        }


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_gradients_through_the_sums_are_right_to_second_order(ranks: Pool, world: int, center: bool):
    wanted = tensor_parallel.second_order(center)
    found = zip(*ranks.run(world, tensor_parallel.second_order, center), strict=True)
    for value, parts in zip(wanted, found, strict=True):
        torch.testing.assert_close(torch.cat(parts, dim=1), value, rtol=0, atol=1e-11)


def test_columns_of_an_ill_conditioned_matrix_are_orthonormal_to_float64(ranks: Pool):
    # By the Gram matrix alone the error is eps cond(V)^2, 2e-6.
    W = torch.cat(ranks.run(2, tensor_parallel.ill_conditioned), dim=1)
    torch.testing.assert_close(W @ W.mT, torch.eye(6, dtype=torch.float64), rtol=0, atol=1e-9)


WRONG_CALLS = {
    "no mesh": "TypeError: mesh must be a DeviceMesh; got ProcessGroup",
    "two dimensions": "ValueError: tensor_parallel_ takes a mesh of one dimension",
    "cut": (
        "ValueError: 0: 2 ranks hold 5 of its 10 rows each, and a border cuts one of its groups (1 group of 4 rows and "
        "2 groups of 3 rows), which must be whole to be orthonormal. Convert it with blocks=2 (groups that no border "
        "cuts, of any size), or group_size=5, 1, make it rowwise, or use fewer ranks."
    ),
    "style": "ValueError: 0: a style must be one of 'colwise', 'rowwise'; got 'columns'",
    "name": "ValueError: this Sequential has no module '9'",
    "plain": "TypeError: 4 is a Linear without an orthogonal weight",
    "sizes": "ValueError: the sizes of the groups must sum to the 3 rows; got (2, 2)",
}


def test_wrong_calls_say_the_rule_and_the_cure(ranks: Pool):
    for found in ranks.run(2, tensor_parallel.refusals):
        assert found.keys() == WRONG_CALLS.keys()
        for name, message in WRONG_CALLS.items():
            assert found[name].startswith(message), (name, found[name])
