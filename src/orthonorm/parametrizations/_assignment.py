"""What an assignment to a computed weight does: it sets V and a learned scale, or says what to do instead."""

import sys
from typing import Any

import torch
from torch import Tensor, nn

from ._initial_scale import initial_scale
from ._weight_norm import OrthogonalWeightNorm

__all__ = ["adapt_assignment"]

# Note [assigning a weight that is computed]
# torch's setter passes the value through `right_inverse`, under no_grad, and writes the result into V. Three things go
# wrong with it alone. A value that requires a gradient would be detached in silence. `functional_call` swaps the value
# in by the same setter and the weight that was read before back: V and the scale would be changed by a call that is to
# change nothing. And a Parameter never reaches the setter, since torch registers it instead, which ends in a KeyError.


def adapt_assignment(module: nn.Module, name: str) -> None:
    """Give the class that torch derived for a module a setter that starts V and the scale from the value."""
    cls: Any = type(module)
    computed: property = cls.__dict__[name]

    def _assign(self: nn.Module, value: Any) -> None:
        first, *others = getattr(self.parametrizations, name)
        _refuse_swap(first.label, name)
        if isinstance(value, Tensor) and value.requires_grad and torch.is_grad_enabled():
            raise ValueError(
                f"{first.label} was assigned a tensor that requires a gradient, but an assignment only sets the value "
                "of V and the gradient would be lost. Assign value.detach(), or compute with it through "
                f"torch.func.functional_call(layer, {{'parametrizations.{name}.original': value}}, inputs)."
            )
        computed.__set__(self, value)
        # Last: nothing is changed where the value is refused, or a warning is raised.
        if isinstance(first.scale, Tensor):
            with torch.no_grad():
                for other in reversed(others):
                    value = other.right_inverse(value)
                first.scale.copy_(initial_scale(first, value))

    setattr(cls, name, property(computed.fget, _assign))
    if "register_parameter" not in cls.__dict__:
        cls.register_parameter = _refusing(cls.register_parameter)


def _refuse_swap(label: str, name: str) -> None:
    """Raise a ValueError where `torch.func.functional_call` is about to put a tensor in the place of the weight."""
    frame = None if torch.compiler.is_compiling() else sys._getframe(1)
    for _ in range(12):  # torch's, those of classes with a __setattr__ of their own, and wrappers that check types
        if frame is None:
            return
        if frame.f_globals.get("__name__") == "torch.nn.utils._named_member_accessor":
            raise ValueError(
                f"{label} is computed from V, so functional_call cannot replace it by the key {name!r}. Pass V by the "
                f"key 'parametrizations.{name}.original', or call a folded copy (orthonorm.fold), whose weight it is."
            )
        frame = frame.f_back


def _refusing(register: Any) -> Any:
    """Return the `register_parameter` of a class that refuses to put an orthogonal weight into a Parameter."""

    def _register_parameter(self: nn.Module, name: str, param: Tensor | None) -> None:
        lists: Any = self._modules.get("parametrizations") or {}
        labels = {key: value[0].label for key, value in lists.items() if isinstance(value[0], OrthogonalWeightNorm)}
        if name in labels:
            raise ValueError(
                f"{labels[name]} is computed from V, so no Parameter can take its place. Assign the values "
                f"(layer.{name} = parameter.detach()), tie weights before the conversion, or fold the model first "
                "(orthonorm.fold_)."
            )
        pruned = name.removesuffix("_orig")
        if pruned != name and pruned in labels and not isinstance(param, nn.Parameter):
            raise ValueError(
                f"{labels[pruned]} is computed from V, so pruning cannot keep it as the parameter {name!r}. Fold the "
                "model first (orthonorm.fold_)."
            )
        register(self, name, param)

    return _register_parameter
