"""The test environment itself: are shapes enforced where they should be, is a test repeatable."""

import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import orthonorm


def loader_module() -> str:
    return type(orthonorm.__loader__).__module__


def test_shapes_and_types_are_enforced_unless_switched_off():
    enforced = os.environ.get("ORTHONORM_TYPECHECK", "1") != "0"
    assert loader_module().startswith("jaxtyping") == enforced


@pytest.mark.compiled
def test_compiled_tests_see_the_plain_library():
    assert not loader_module().startswith("jaxtyping")


@pytest.mark.parametrize("turn", ["first", "second"])
def test_each_test_starts_from_the_same_seed(turn: str):
    expected = torch.randn(3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.randn(3), expected)


DRAWN: dict[int, torch.Tensor] = {}


@given(st.integers(0, 3))
def test_an_example_is_the_same_when_it_is_replayed(key: int):
    drawn = torch.randn(3)
    assert torch.equal(DRAWN.setdefault(key, drawn), drawn)


def test_torch_runs_on_one_thread():
    assert torch.get_num_threads() == 1
