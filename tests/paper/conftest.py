"""A data set small enough that a run takes a fraction of a second, and runs on it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from orthonorm.paper import data
from orthonorm.paper.config import Run
from orthonorm.paper.data import Dataset


def synthetic(_: object) -> Dataset:
    """Four classes of noisy 8 x 8 patterns: synthetic, and learned in a few steps."""
    random = torch.Generator().manual_seed(1)
    patterns = torch.randn(4, 1, 8, 8, generator=random)
    labels = torch.arange(76) % 4
    images = patterns[labels] + 0.5 * torch.randn(76, 1, 8, 8, generator=random)
    return Dataset(
        name="tiny",
        description="synthetic patterns",
        classes=4,
        train_x=images[:60],
        train_y=labels[:60],
        test_x=images[60:],
        test_y=labels[60:],
        digest="tiny",
    )


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Run]:
    """Put the synthetic data set into the table; gives a function that makes runs on it."""
    monkeypatch.setitem(data.DATASETS, "tiny", synthetic)

    def make(**fields: Any) -> Run:
        given: dict[str, Any] = {
            "experiment": "tests",
            "dataset": "tiny",
            "model": "mlp",
            "model_args": {"hidden_layers": 2, "width": 12},
            "method": "plain-he",
            "lr": 0.1,
            "epochs": 3,
            "batch_size": 16,
        }
        return Run(**(given | fields))

    return make
