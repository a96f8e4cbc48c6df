"""How rows are split into groups, against the splitting done in another way."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from orthonorm.functional import orthonormalize
from orthonorm.functional._groups import GROUPINGS, group_sizes, row_limit, runs_of_equal_size
from orthonorm.functional._orthogonality import orthogonality_errors


@st.composite
def splits(draw: st.DrawFn) -> tuple[int, int, int | None, bool]:
    n, center = draw(st.integers(1, 60)), draw(st.booleans())
    d = draw(st.integers(2, 40))
    limit = d - center
    group_size = draw(st.none() | st.integers(1, limit))
    return n, d, group_size, center


@given(splits())
def test_balanced_groups_are_those_of_tensor_split(split: tuple[int, int, int | None, bool]):
    n, d, group_size, center = split
    size = min(d - 1 if center else d, group_size or n)
    count = next(k for k in range(1, n + 1) if k * size >= n)
    expected = tuple(len(part) for part in torch.arange(n).tensor_split(count))
    assert group_sizes(n, d, group_size=group_size, center=center, grouping="balanced") == expected


@given(splits())
def test_tail_groups_are_those_of_split(split: tuple[int, int, int | None, bool]):
    n, d, group_size, center = split
    size = min(d - 1 if center else d, group_size or n)
    expected = tuple(len(part) for part in torch.arange(n).split(size))
    assert group_sizes(n, d, group_size=group_size, center=center, grouping="tail") == expected


@pytest.mark.parametrize(
    ("n", "d", "options", "expected"),
    [
        pytest.param(100, 100, {"center": True}, (50, 50), id="square"),
        pytest.param(100, 100, {"grouping": "tail", "center": True}, (99, 1), id="square tail"),
        pytest.param(100, 100, {"center": False}, (100,), id="square uncentred"),
        pytest.param(256, 2304, {"group_size": 64}, (64,) * 4, id="the paper's 64"),
        pytest.param(10, 100, {"group_size": 64}, (10,), id="fewer rows than a group"),
        pytest.param(7, 100, {"group_size": 3}, (3, 2, 2), id="balanced remainder"),
        pytest.param(7, 100, {"group_size": 3, "grouping": "tail"}, (3, 3, 1), id="tail remainder"),
        pytest.param(16, 9, {"center": False}, (8, 8), id="16 filters on 9 inputs"),
        pytest.param(16, 9, {}, (8, 8), id="16 filters on 9 inputs centred"),
        pytest.param(3, 2, {"center": True}, (1, 1, 1), id="two inputs"),
        pytest.param(0, 5, {}, (), id="no rows"),
        pytest.param(2, 3, {"group_size": 2}, (2,), id="at the limit"),
        pytest.param(3, 3, {"group_size": 3, "center": False}, (3,), id="at the limit uncentred"),
    ],
)
def test_sizes(n: int, d: int, options: dict, expected: tuple[int, ...]):
    assert group_sizes(n, d, **options) == expected


def test_the_limit_is_the_rank_that_rows_can_have(center: bool):
    # Errata 2: a centred row sums to zero.
    for d in range(2, 7):
        rows = torch.eye(d, dtype=torch.float64)
        rows = rows - rows.mean(1, keepdim=True) if center else rows
        assert row_limit(d, center) == torch.linalg.matrix_rank(rows)


@pytest.mark.parametrize("grouping", GROUPINGS)
@pytest.mark.parametrize("n", [1, 2, 7, 12, 13])
def test_each_group_is_mapped_by_itself(n: int, grouping: str, center: bool, method: str):
    V = torch.randn(n, 6, dtype=torch.float64)
    options = {"group_size": 5, "center": center, "grouping": grouping}
    W = orthonormalize(V, method=method, **options)
    sizes = group_sizes(n, 6, **options)
    alone = [orthonormalize(part, center=center, method=method) for part in V.split(list(sizes))]
    assert torch.cat(alone).shape == V.shape
    torch.testing.assert_close(W, torch.cat(alone), rtol=0, atol=1e-12)
    assert orthogonality_errors(W, sizes).max() <= 1e-13


def test_groups_do_not_see_each_other(center: bool, method: str):
    V = torch.randn(6, 8, dtype=torch.float64)
    moved = V.clone()
    moved[:3] += 1 + torch.randn(3, 8, dtype=torch.float64)
    before, after = (orthonormalize(X, group_size=3, center=center, method=method) for X in (V, moved))
    assert (before[:3] - after[:3]).abs().max() > 0.1
    torch.testing.assert_close(before[3:], after[3:], rtol=0, atol=1e-13)


@given(st.lists(st.integers(1, 4), max_size=8))
def test_runs_say_the_same_sizes(sizes: list[int]):
    runs = runs_of_equal_size(tuple(sizes))
    assert [size for size, count in runs for _ in range(count)] == sizes
    assert all(a[0] != b[0] for a, b in pairwise(runs))
