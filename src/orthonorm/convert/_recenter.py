"""V set to a multiple of W: the same function, well conditioned and of a chosen size."""

from numbers import Real

import torch
from torch import nn

from orthonorm.functional._completion import complete_rank
from orthonorm.parametrizations._registration import free_matrix, orthogonal_weights
from orthonorm.parametrizations._tied_weights import User, find_users

__all__ = ["recenter_"]


def recenter_(model: nn.Module, *, norm: float = 1.0) -> nn.Module:
    """Set every V to `norm * W`: the same function, V well conditioned and with rows of a chosen norm again.

    W does not depend on the size of V, so the effective rate is `lr / |V|^2`; weight decay shrinks V and steps lengthen
    it. This resets it. A momentum that an optimizer holds for V belongs to the old V: set it to zero or let it fade.

    Args:
        model: any module with orthogonal weights.
        norm: the norm of each row of V afterwards.

    Returns:
        The model.

    Raises:
        TypeError: if `model` is not a module, or `norm` no number.
        ValueError: if `norm` is not positive, the model has no orthogonal weight, one is sharded among ranks or on the
            meta device, or a V is read in two ways (by a plain layer, or through other options), so that no other V
            gives both.

    Example:
        >>> import torch, orthonorm as on
        >>> layer = on.recenter_(on.OrthogonalLinear(8, 4), norm=2.0)
        >>> print(f"{on.inspect(layer).layers[0].norm:.4f}")
        2.0000

    Source: phi(c V) = phi(V), a property of equation (3) of the paper.
    """
    if not isinstance(norm, Real):
        raise TypeError(f"norm must be a positive number; got {norm!r}.")
    if not 0 < norm < float("inf"):
        raise ValueError(f"norm must be a positive number; got {norm!r}.")
    found = list(orthogonal_weights(model))
    if not found:
        raise ValueError(f"this {type(model).__name__} has no orthogonal weight. Call orthogonalize_ first.")
    for key, module, name, _ in found:
        if getattr(free_matrix(module, name), "device_mesh", None) is not None:
            raise ValueError(f"{key} is sharded among ranks (DTensor). Call recenter_ before the model is sharded.")
        if free_matrix(module, name).is_meta:
            raise ValueError(
                f"{key} is on the meta device, which holds no values. Call to_empty(device=...) on the model and load "
                "its weights before recenter_."
            )
    users = list(find_users(model).values())
    for several in users:
        _check_one_way(several)
    with torch.no_grad():
        for (_, module, name, owner), *_ in users:
            assert owner is not None  # those through a parametrization come first
            V = free_matrix(module, name)
            if V.numel() == 0:
                continue
            groups = [group for matrix in owner.rows(V) for group in matrix.split(owner.sizes)]
            full = torch.cat([complete_rank(group, center=owner.center)[0] for group in groups])
            W = owner.orthonormal_rows(owner.assemble(full.view(owner.groups, -1, full.shape[-1]), V))
            V.copy_(owner.assemble(norm * W, V))
    return model


def _check_one_way(users: list[User]) -> None:
    """Refuse a V whose users make different orthonormal rows of it: what keeps one of them changes the other."""
    first = users[0]
    for user in users[1:]:
        if user.owner is None or first.owner is None:
            reason = f"{user.key} reads V itself"
        elif user.owner.rows_key() != first.owner.rows_key():
            reason = f"{user.key} makes other orthonormal rows of it"
        else:
            continue
        raise ValueError(
            f"{first.key} shares its V with {user.key}, and no other V keeps what both compute: {reason}. "
            "Fold the model (orthonorm.fold_), which gives each a tensor of its own, and convert it anew."
        )
