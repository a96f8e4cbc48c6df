"""V set to a multiple of W: the same function, well conditioned and of a chosen size."""

import math
from numbers import Real

import torch
from torch import Tensor, nn

from orthonorm.functional._precision import frobenius_norm, in_float64
from orthonorm.functional._rows import is_sharded
from orthonorm.parametrizations._arguments import refuse_meta
from orthonorm.parametrizations._orthogonal_weights import orthogonal_weights, unconstrained
from orthonorm.parametrizations._tied_weights import User, find_users
from orthonorm.parametrizations._weight_norm import OrthogonalWeightNorm

__all__ = ["renormalize_"]


def renormalize_(model: nn.Module, *, norm: float | None = None) -> nn.Module:
    r"""Make every V well conditioned and of a chosen size, without a change to what the model computes.

    $$V \leftarrow c\, W, \qquad c = \text{norm}, \quad \text{or} \quad c = |V|_F / |W|_F \text{ without a norm}$$

    W, before the scale, does not depend on the size of V, but the speed of training does. The effective learning rate
    of W is `lr / |V|^2` with SGD and `lr / |V|` with Adam and AdamW, where |V| is the norm of a row. This holds where
    the condition number of V is near 1, as it is after this call. Steps lengthen V and weight decay shrinks it.
    Pass `norm=1.0` where a layer has slowed down because V grew, and leave it out to restore the condition number
    alone. Optimizer states (momentum) that belong to the old V are not changed.

    Args:
        model: any module with orthogonal weights.
        norm: the norm of each row of V afterwards; None to let each weight keep its Frobenius norm. A V of zeros gets
            rows of norm 1 then.

    Returns:
        The model.

    Raises:
        TypeError: if `model` is not a module, or `norm` no number.
        ValueError: if `norm` is not positive, or too large or too small for the dtype of a weight. If the model has no
            orthogonal weight, or one is sharded among ranks, on the meta device or not finite. If a V is read in two
            ways (by a plain layer, or through other options), so that no other V gives both. Nothing is changed then.

    Examples:
        >>> import torch, orthonorm as on
        >>> layer = on.renormalize_(on.OrthogonalLinear(8, 4), norm=2.0)
        >>> print(f"{on.inspect(layer).layers[0].v_norm:.4f}")
        2.0000
    """
    _check_norm(norm)
    found = list(orthogonal_weights(model))
    if not found:
        raise ValueError(f"this {type(model).__name__} has no orthogonal weight. Call orthogonalize_ first.")
    for key, module, name, _ in found:
        _check_values(key, unconstrained(module, name))
    users = list(find_users(model).values())
    for several in users:
        _check_one_way(several)
    with torch.no_grad():
        plan = [_multiple(several[0], norm) for several in users]
        for V, c, owner in plan:
            # In float64, so that V is rounded once.
            wide = in_float64(owner.completed(V)[0])
            V.copy_(owner.assemble(c * owner.orthonormal_rows(wide), wide))
    return model


def _check_norm(norm: float | None) -> None:
    rule = f"norm must be a positive number, or None; got {norm!r}."
    if norm is not None and (isinstance(norm, bool) or not isinstance(norm, Real)):
        raise TypeError(rule)
    if norm is not None and not 0 < norm < math.inf:
        raise ValueError(rule)


def _check_values(key: str, V: Tensor) -> None:
    if is_sharded(V):
        raise ValueError(f"{key} is sharded among ranks (DTensor). Call renormalize_ before the model is sharded.")
    refuse_meta(V, key, "renormalize_")
    if not bool(torch.isfinite(V).all()):
        raise ValueError(
            f"{key} must have a finite V to be renormalized; it holds NaN or infinity. Load the last checkpoint "
            "without them, or call reset_parameters() on the layer."
        )


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
            "Fold the model (orthonorm.fold_), which gives each a tensor of its own, and convert it again."
        )


def _multiple(user: User, norm: float | None) -> tuple[Tensor, float, OrthogonalWeightNorm]:
    """Return V, the number c of `c W` that it is set to, and its parametrization.

    Raises:
        ValueError: if the entries of `c W` would be no accurate numbers of the dtype.
    """
    owner = user.owner
    assert owner is not None  # those through a parametrization come first
    V = unconstrained(user.module, user.name)
    rows = in_float64(owner.rows(V))
    if rows.numel() == 0:
        return V, 1.0, owner
    c = float(norm) if norm is not None else float(frobenius_norm(rows)) / math.sqrt(rows.shape[:-1].numel())
    c = c if c > 0 else 1.0
    # Below the smallest normal number, the spacing of numbers no longer shrinks with them. An entry of a row of norm c
    # is about c / sqrt(d): from this bound on, rounding it costs a row no more than one rounding of its dtype.
    info = torch.finfo(V.dtype)
    low, high = math.sqrt(rows.shape[-1]) * info.tiny, info.max
    if not low <= c <= high:
        asked = f"norm must be between {low:.2g} and {high:.2g} for {user.key} in {V.dtype}; got {c:.3g}"
        raise ValueError(f"{asked}{'' if norm is not None else ', the norm of its V'}. Pass norm=1.0.")
    return V, c, owner
