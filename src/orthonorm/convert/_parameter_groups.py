"""Parameter groups for an optimizer: the unconstrained parameters V without weight decay."""

from numbers import Real
from typing import Any

from torch import nn

from orthonorm.parametrizations._orthogonal_weights import orthogonal_weights, unconstrained

__all__ = ["param_groups"]


def param_groups(model: nn.Module, *, weight_decay: float = 0.0) -> list[dict[str, Any]]:
    """Return optimizer groups in which the unconstrained parameters V have no weight decay.

    W does not depend on the size of V, so weight decay on V does not regularize the network. With SGD and AdamW it
    shrinks V and raises the effective learning rate of W: `lr / |V|^2` with SGD and `lr / |V|` with AdamW, where the
    condition number of V is near 1. `torch.optim.Adam` adds weight decay to the gradient and scales it entry by entry,
    so W changes too. Everything else gets `weight_decay`, as in torch's own optimizers: plain layers, and also scales,
    biases and the weights of normalization layers. The second example leaves these vectors out, as timm does.

    Args:
        model: any module.
        weight_decay: for all parameters but V.

    Returns:
        Two groups of the parameters that require a gradient. The first holds all but V and has `weight_decay`; the
        second holds V and has none.

    Raises:
        TypeError: if `model` is not a module, or `weight_decay` no number.
        ValueError: if it is negative.

    Examples:
        >>> import torch, orthonorm as on
        >>> model = on.OrthogonalLinear(8, 4)
        >>> [len(group["params"]) for group in on.param_groups(model, weight_decay=5e-4)]
        [1, 1]
        >>> model = torch.nn.Sequential(model, torch.nn.LayerNorm(4), torch.nn.Linear(4, 2))
        >>> rest, free = on.param_groups(model, weight_decay=5e-4)
        >>> vectors = {"params": [p for p in rest["params"] if p.ndim < 2], "weight_decay": 0.0}
        >>> rest["params"] = [p for p in rest["params"] if p.ndim >= 2]
        >>> optimizer = torch.optim.AdamW([rest, vectors, free])
        >>> [(len(group["params"]), group["weight_decay"]) for group in optimizer.param_groups]
        [(1, 0.0005), (4, 0.0), (1, 0.0)]
    """
    if not isinstance(weight_decay, Real):
        raise TypeError(f"weight_decay must be a number that is not negative; got {weight_decay!r}.")
    if not weight_decay >= 0:
        raise ValueError(f"weight_decay must not be negative; got {weight_decay!r}.")
    free = {id(unconstrained(module, name)) for _, module, name, _ in orthogonal_weights(model)}
    parameters = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in parameters if id(p) not in free], "weight_decay": weight_decay},
        {"params": [p for p in parameters if id(p) in free], "weight_decay": 0.0},
    ]
