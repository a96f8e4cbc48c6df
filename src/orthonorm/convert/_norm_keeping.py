"""A hook on an optimizer that keeps |V| as it is now, so that the effective learning rate is what the schedule says."""

import math
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from orthonorm.functional._precision import frobenius_norm
from orthonorm.functional._rows import is_sharded
from orthonorm.parametrizations._arguments import refuse_meta
from orthonorm.parametrizations._orthogonal_weights import orthogonal_weights, unconstrained
from orthonorm.parametrizations._weight_norm import OrthogonalWeightNorm

from ._innermost_optimizer import innermost_optimizer

__all__ = ["register_norm_keeping"]

_KEY = "v_norms"

# Note [momentum when the norm is kept]
# W does not depend on the size of V, so rescaling V after a step changes no output. The gradient of V is inversely
# proportional to |V|. Every gradient that a momentum buffer or Adam's averages hold was taken at the norm that is kept,
# as is the next one: they are of one unit, and nothing in the optimizer's state has to be rescaled. What a buffer has
# along V itself (the gradients of earlier steps are orthogonal to earlier Vs) only lengthens V, which is undone.


def register_norm_keeping(optimizer: Optimizer, model: nn.Module) -> RemovableHandle:
    r"""Rescale every V to its present Frobenius norm after each step of an optimizer.

    $$V \leftarrow \frac{|V_0|_F}{|V|_F} V$$

    Steps lengthen V, and weight decay shrinks it, so the effective learning rate of W (`lr / |V|^2` with SGD,
    `lr / |V|` with Adam and AdamW) drifts away from the schedule. With its norm kept, it follows the schedule alone.
    The rescaling changes neither W nor the optimizer's state. It works with `torch.optim.SGD`, `Adam` and `AdamW`,
    momentum included, and not with an optimizer that keeps a history of whole steps (`LBFGS`).

    The norms stand in the optimizer's parameter groups under the key `v_norms`, so that its `state_dict` saves them. A
    run that loads model and optimizer goes on bit for bit, registered before or after the loading. A V that is written
    between two steps, as by `renormalize_` or by a checkpoint without norms, is kept at the norm that it has then.

    Args:
        optimizer: one that holds V of the model, or some of them; the others are left alone.
        model: a module with orthogonal weights.

    Returns:
        A handle whose `remove()` ends it.

    Raises:
        TypeError: if `model` is not a module, or `optimizer` no optimizer, or `LBFGS`.
        ValueError: if the optimizer holds no V of the model; if a V that it holds is zero, not finite, on the meta
            device or sharded among ranks.

    Examples:
        >>> import torch, orthonorm as on
        >>> model = on.renormalize_(on.OrthogonalLinear(8, 4), norm=1.0)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        >>> handle = on.register_norm_keeping(optimizer, model)
        >>> model(torch.ones(1, 8)).square().sum().backward()
        >>> optimizer.step()
        >>> print(f"{on.inspect(model).layers[0].v_norm:.4f}")
        1.0000
    """
    optimizer = _checked_optimizer(optimizer)
    kept = {id(V): _checked_norm(key, owner, V) for key, owner, V in _held(optimizer, model)}
    if not kept:
        raise ValueError(
            f"optimizer must hold a V of the model; this {type(optimizer).__name__} holds none. Convert the model and "
            "build the optimizer from its parameters first."
        )
    for V, loaded in _noted(optimizer, []):
        # The norm of a checkpoint that was loaded before, where V has it but for its rounding.
        if math.isclose(kept.get(id(V), 0.0), loaded, rel_tol=4 * torch.finfo(V.dtype).eps):
            kept[id(V)] = loaded
    written = _note(optimizer, kept)
    seen = {id(V): V._version for *_, V in _held(optimizer, model)}

    def adopt(*_called_with: Any) -> None:
        loaded = {id(V): norm for V, norm in _noted(optimizer, written)}
        kept.update(loaded)
        for _, owner, V in _held(optimizer, model):
            # A V that joined the optimizer, or was written since the last step (`renormalize_`, a checkpoint without
            # norms), is kept as it is now.
            joined_or_written = id(V) not in kept or seen.get(id(V), V._version) != V._version
            if joined_or_written and id(V) not in loaded and 0 < (norm := float(_norm(owner, V))) < math.inf:
                kept[id(V)] = norm
        written[:] = _note(optimizer, kept)

    def restore(*_called_with: Any) -> None:
        for _, owner, V in _held(optimizer, model):
            if id(V) in kept:
                _rescale(owner, V, kept[id(V)])
            seen[id(V)] = V._version

    before, after = optimizer.register_step_pre_hook(adopt), optimizer.register_step_post_hook(restore)
    return _TwoHooks(before, after)


def _checked_optimizer(optimizer: Optimizer) -> Optimizer:
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer; got {type(optimizer).__name__}.")
    optimizer = innermost_optimizer(optimizer)
    if isinstance(optimizer, torch.optim.LBFGS):
        raise TypeError(
            "optimizer must keep no history of whole steps, which a rescaled V would not fit; got LBFGS. Take SGD, "
            "Adam or AdamW."
        )
    return optimizer


class _TwoHooks(RemovableHandle):
    """A handle whose `remove()` ends two hooks."""

    def __init__(self, *handles: RemovableHandle) -> None:
        super().__init__(OrderedDict())
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def _held(optimizer: Optimizer, model: nn.Module) -> Iterator[tuple[str, OrthogonalWeightNorm, Tensor]]:
    """Yield each V of the model that the optimizer holds."""
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for key, module, name, owner in orthogonal_weights(model):
        V = unconstrained(module, name)
        if id(V) in held and owner.rows(V).numel():
            yield key, owner, V


def _noted(optimizer: Optimizer, written: list[list[float]]) -> list[tuple[Tensor, float]]:
    """Return each V with its norm from the groups of a checkpoint: lists that are not those written here."""
    return [
        (V, norm)
        for group in optimizer.param_groups
        if _KEY in group and not any(group[_KEY] is own for own in written) and len(group[_KEY]) == len(group["params"])
        for V, norm in zip(group["params"], group[_KEY], strict=True)
        if norm
    ]


def _note(optimizer: Optimizer, kept: dict[int, float]) -> list[list[float]]:
    """Write the norms into the groups, for the optimizer's `state_dict`; 0 for what is not kept. Return the lists."""
    for group in optimizer.param_groups:
        group[_KEY] = [kept.get(id(parameter), 0.0) for parameter in group["params"]]
    return [group[_KEY] for group in optimizer.param_groups]


def _checked_norm(key: str, owner: OrthogonalWeightNorm, V: Tensor) -> float:
    refuse_meta(V, key, "register_norm_keeping")
    if is_sharded(V):
        raise ValueError(
            f"{key} is sharded among ranks (DTensor), and no rank has the norm of its V. Leave this hook out, or do "
            "not shard the weight."
        )
    norm = float(_norm(owner, V))
    if not 0 < norm < math.inf:
        raise ValueError(
            f"{key} must have a finite V that is not zero; its norm is {norm:.3g}. Call renormalize_(model, norm=1.0), "
            "or load a checkpoint without it."
        )
    return norm


def _norm(owner: OrthogonalWeightNorm, V: Tensor) -> Tensor:
    """Return the Frobenius norm of the rows of V that train."""
    return frobenius_norm(owner.rows(V.detach()))


@torch.no_grad()
def _rescale(owner: OrthogonalWeightNorm, V: Tensor, norm: float) -> None:
    factor = (norm / _norm(owner, V)).to(V.device, torch.promote_types(V.dtype, torch.float32))
    V.copy_(owner.assemble(owner.rows(V) * factor, V))
