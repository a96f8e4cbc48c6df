"""Who in a model computes with a V: tied layers share one, and need not read it in one way."""

from typing import NamedTuple

from torch import nn
from torch.nn.utils.parametrize import ParametrizationList

from ._orthogonal_weights import orthogonal_weights, unconstrained
from ._weight_norm import OrthogonalWeightNorm

__all__ = ["User", "find_users"]


class User(NamedTuple):
    """One place of a model that reads a V."""

    key: str
    module: nn.Module
    name: str
    owner: OrthogonalWeightNorm | None
    """The parametrization that it is read through; None where V itself is read."""


def find_users(model: nn.Module) -> dict[int, list[User]]:
    """Return the users of each V of a model, by its id: those through a parametrization of ours first.

    Raises:
        TypeError: if `model` is not a module.
    """
    found: dict[int, list[User]] = {}
    for key, module, name, owner in orthogonal_weights(model):
        found.setdefault(id(unconstrained(module, name)), []).append(User(key, module, name, owner))
    for fqn, module in model.named_modules():
        if isinstance(module, ParametrizationList) and isinstance(module[0], OrthogonalWeightNorm):
            continue
        for name, parameter in module._parameters.items():
            if id(parameter) in found:
                found[id(parameter)].append(User(f"{fqn}.{name}" if fqn else name, module, name, None))
    return found
