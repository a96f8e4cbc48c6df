"""Networks of the experiments, as a table; a plain network knows nothing of orthogonality."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from orthonorm.paper.errors import UserError
from orthonorm.paper.models.mlp import mlp as mlp

MODELS: dict[str, Callable[..., nn.Module]] = {"mlp": mlp}


def build_model(
    name: str, arguments: dict[str, Any], *, shape: tuple[int, ...], classes: int, start: str, seed: int
) -> nn.Module:
    """Network of the table, its weights drawn from the named start: a function of the arguments.

    Raises:
        UserError: an unknown name or argument.
    """
    if name not in MODELS:
        raise UserError(f"model is one of {', '.join(MODELS)}, got {name!r}")
    try:
        return MODELS[name](shape=shape, classes=classes, start=start, seed=seed, **arguments)
    except TypeError as error:
        raise UserError(f"model {name} with {arguments}: {error}") from None
