"""The worked example: a trained network, converted and fine-tuned."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def example() -> ModuleType:
    path = Path(__file__).parents[2] / "examples" / "fine_tune.py"
    spec = importlib.util.spec_from_file_location("fine_tune", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_converted_network_regains_what_conversion_took(example: ModuleType):
    found = example.compare(0)
    assert list(found) == ["plain", "orthogonal", "orthogonal, with scale"]
    plain_before, plain_after = found["plain"]
    assert plain_after < 10
    for name in ("orthogonal", "orthogonal, with scale"):
        before, after = found[name]
        assert before > plain_before
        assert after < plain_after + 1
