"""The orthogonal weights of a model, and the unconstrained parameter that each is computed from."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from ._weight_norm import OrthogonalWeightNorm

__all__ = ["orthogonal_weights", "unconstrained"]


def orthogonal_weights(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, OrthogonalWeightNorm]]:
    """Yield `(plain key, module, tensor name, parametrization)` of every orthogonal weight of a model.

    Raises:
        TypeError: if `model` is not a module.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    for fqn, module in model.named_modules():
        # Not as an attribute: a wrapper that hands on what it has not itself would show those of the module in it. And
        # not by `get`, which the submodules of a scripted module do not have.
        children = module._modules
        own: Any = children["parametrizations"] if "parametrizations" in children else {}  # noqa: SIM401
        for name, parametrizations in own.items():
            if isinstance(parametrizations[0], OrthogonalWeightNorm):
                yield f"{fqn}.{name}" if fqn else name, module, name, parametrizations[0]


def unconstrained(module: nn.Module, name: str) -> Any:
    """Return the unconstrained parameter V of a module's orthogonal weight, or what `functional_call` has put there."""
    return getattr(module.parametrizations, name).original
