"""A hook on an optimizer that keeps |V| as it is now, so that the effective learning rate is what the schedule says."""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from orthonorm.functional._precision import in_float64, row_norms
from orthonorm.parametrizations._registration import free_matrix, orthogonal_weights
from orthonorm.parametrizations._weight_norm import OrthogonalWeightNorm

__all__ = ["register_norm_keeping"]

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
    momentum included, and not with an optimizer that keeps a history of whole steps (`LBFGS`). A checkpoint that is
    loaded later is rescaled at the next step: register after loading.

    Args:
        optimizer: one that holds V of the model, or some of them; the others are left alone.
        model: a module with orthogonal weights.

    Returns:
        A handle whose `remove()` ends it.

    Raises:
        TypeError: if `model` is not a module, or `optimizer` no optimizer.
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

    Source: phi(c V) = phi(V), a property of equation (3) of the paper.
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer; got {type(optimizer).__name__}.")
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    kept: dict[int, Tensor] = {}
    for key, module, name, owner in orthogonal_weights(model):
        V = free_matrix(module, name)
        if id(V) in held and V.numel():
            _check(key, V)
            kept[id(V)] = _norm(owner, V)
            if not 0 < float(kept[id(V)]) < math.inf:
                raise ValueError(
                    f"{key} must have a finite V that is not zero; its norm is {float(kept[id(V)]):.3g}. Call "
                    "renormalize_(model, norm=1.0), or load a sound checkpoint."
                )
    if not kept:
        raise ValueError(
            f"optimizer must hold a V of the model; this {type(optimizer).__name__} holds none. Convert the model and "
            "build the optimizer from its parameters first."
        )

    def restore(*_called_with: Any) -> None:
        for _, module, name, owner in orthogonal_weights(model):
            V = free_matrix(module, name)
            if id(V) in kept:
                _rescale(owner, V, kept[id(V)])

    return optimizer.register_step_post_hook(restore)


def _check(key: str, V: Tensor) -> None:
    if V.is_meta:
        raise ValueError(
            f"{key} is on the meta device, which holds no values. Call to_empty(device=...) on the model and load its "
            "weights before register_norm_keeping."
        )
    if getattr(V, "device_mesh", None) is not None:
        raise ValueError(
            f"{key} is sharded among ranks (DTensor), and no rank has the norm of its V. Leave this hook out, or do "
            "not shard the weight."
        )


def _norm(owner: OrthogonalWeightNorm, V: Tensor) -> Tensor:
    """Return the Frobenius norm of the rows of V that train."""
    return row_norms(in_float64(owner.rows(V.detach())).reshape(1, -1)).squeeze()


@torch.no_grad()
def _rescale(owner: OrthogonalWeightNorm, V: Tensor, norm: Tensor) -> None:
    factor = (norm.to(V.device) / _norm(owner, V).to(V.device)).to(torch.promote_types(V.dtype, torch.float32))
    V.copy_(owner.assemble(owner.rows(V) * factor, V))
