"""A weight made on the meta device, which holds no values, is recognised as long as nothing has filled it."""

from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["await_values", "stop_waiting"]

# Note [memory that nothing has filled]
# `to_empty`, and loaders that find no value for V in a file (transformers' `from_pretrained`), put memory of any
# content in the place of a V on the meta device, which no look at its values can tell from a V. Both call
# `torch.empty_like` on V, so a V on the meta device is a Parameter that answers with NaN. Whatever fills V afterwards,
# by any path, overwrites the mark, and V stays all the state. Other loaders (diffusers') leave V on the meta device and
# fill the rest; torch 2.14 multiplies a tensor on a CPU by one on the meta device without an error, into memory of any
# content. So the weight that comes of a V on the meta device refuses to meet tensors that hold values.

_NEVER_FILLED = (
    "was made on the meta device, and its V has never received values. Load a plain file into the plain model and "
    "convert that (orthogonalize_), or call model.load_state_dict(plain.state_dict()); convert before you offload."
)


class _Unfilled(nn.Parameter):
    """A parameter on the meta device that becomes NaN on a device, and from there on is an ordinary one."""

    def __new__(cls, data: Tensor, requires_grad: bool = True) -> Any:
        """Return one of this class where there are no values, and an ordinary parameter where there are."""
        return nn.Parameter.__new__(cls if data.is_meta else nn.Parameter, data, requires_grad)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute as torch does; memory made in the likeness of this parameter is NaN."""
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            return result if func is not torch.empty_like or result.is_meta else result.fill_(torch.nan)


def await_values(owner: nn.Module, *tensors: Any) -> None:
    """Let a parametrization refuse to compute from those of its tensors that are on the meta device until filled."""
    missing = [tensor for tensor in tensors if isinstance(tensor, nn.Parameter) and tensor.is_meta]
    for tensor in missing:
        tensor.__class__ = _Unfilled
    if missing:
        owner.register_forward_pre_hook(_refuse_unfilled)
        owner.register_forward_hook(_mark_weight)


def stop_waiting(owner: nn.Module) -> None:
    """Let a parametrization compute from whatever V holds."""
    for hooks in (owner._forward_pre_hooks, owner._forward_hooks):
        for key, hook in list(hooks.items()):
            if hook in (_refuse_unfilled, _mark_weight):
                del hooks[key]


def _refuse_unfilled(owner: Any, inputs: tuple[Tensor]) -> None:
    """Raise a ValueError where V, or a learned scale, has never been filled; once it has, stop looking.

    Only on a CPU: on an accelerator the forward never looks at values, and the weight is NaN.
    """
    tensors = owner.sources(*inputs)
    if torch.compiler.is_compiling() or any(not tensor.is_cpu for tensor in tensors):
        return
    if any(bool(tensor.isnan().all()) for tensor in tensors if tensor.numel()):
        raise ValueError(f"{owner.label} {_NEVER_FILLED}")
    stop_waiting(owner)


def _mark_weight(owner: Any, _: tuple[Tensor], weight: Tensor) -> Tensor | None:
    """Let the weight that comes of a V on the meta device refuse tensors that hold values."""
    if torch.compiler.is_compiling() or not weight.is_meta:
        return None
    marked = weight.as_subclass(_Nowhere)
    marked.label = owner.label
    return marked


class _Nowhere(Tensor):
    """A weight on the meta device."""

    label: str

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute as torch does on the meta device; raise a ValueError where tensors with values are among the rest."""
        tensors = [value for value in (*args, *(kwargs or {}).values()) if isinstance(value, Tensor)]
        with torch._C.DisableTorchFunctionSubclass():
            if all(tensor.is_meta or tensor.dim() == 0 for tensor in tensors):
                return func(*args, **(kwargs or {}))
        label = next(tensor.label for tensor in tensors if isinstance(tensor, cls))
        raise ValueError(f"{label} {_NEVER_FILLED}")
