"""The paper's numbers and claims, as data."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from typing import Any


def paper_numbers() -> dict[str, Any]:
    """Contents of ``paper_numbers.toml``."""
    return tomllib.loads((files("orthonorm_paper.reports") / "paper_numbers.toml").read_text(encoding="utf-8"))
