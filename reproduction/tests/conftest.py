"""A data set small enough that a run takes a fraction of a second, and runs on it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from orthonorm_paper import data
from orthonorm_paper.records.run import Run
from paper_support.tiny_data import synthetic


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


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Folder of JPEG files in seven classes of one colour each, and noise: two a class to train and one to test."""
    random = np.random.default_rng(0)
    for label in range(7):
        colour = random.integers(0, 256, 3)
        for part, names in (("train", "ab"), ("val", "c")):
            (tmp_path / "pictures" / part / f"class{label}").mkdir(parents=True)
            for name in names:
                pixels = np.clip(colour + random.integers(-20, 21, (40, 50, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(tmp_path / "pictures" / part / f"class{label}" / f"{name}.jpg")
    return tmp_path / "pictures"
