"""Runs a script as `torchrun` would."""

import os
from typing import Any

from torch import Tensor


def run(source: str, rank: int, world: int, port: int) -> dict[str, Tensor]:
    """Run a script's text with the variables that `torchrun` sets, and return the `state` it ends with."""
    variables = {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ |= {name: str(value) for name, value in variables.items()}
    found: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, "docs/scale.md", "exec"), found)
    return {key: value.detach().clone() for key, value in found["state"].items()}
