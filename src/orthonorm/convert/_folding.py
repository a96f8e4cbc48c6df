"""Folding: a model with orthogonal weights becomes the plain model that computes the same."""

import copy
from collections.abc import Hashable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from orthonorm.functional._rows import is_sharded
from orthonorm.parametrizations._orthogonal_weights import orthogonal_weights, unconstrained
from orthonorm.parametrizations._recurrent_and_attention import restore
from orthonorm.parametrizations._registration import give_own_class, load_plain_weight, place_before
from orthonorm.parametrizations._tied_weights import find_users

__all__ = ["fold", "fold_"]


def fold_(model: nn.Module) -> nn.Module:
    """Replace every orthogonal weight by its value, in place: a plain model that computes the same.

    The result has plain classes, and the parameters, keys and shapes of the plain model's `state_dict`. It keeps
    biases, dtypes, devices, `requires_grad`, hooks and the training flag. A model without orthogonal weights is left as
    it is.

    Layers that share V stay tied where they compute with one weight. They may not, where another layer reads V itself,
    or through other options or a scale of its own. Then V goes to whoever reads it as it is, or to the first, and each
    other layer gets a parameter of its own, new to an optimizer.

    Unlike a model with orthogonal weights, the result may be pickled whole, by `torch.save(model, path)`. To read it
    back takes `torch.load(path, weights_only=False)`, which runs code of the file: do that with files that you trust
    only. The plain model reads its `state_dict` with the default, `weights_only=True`.

    Args:
        model: any module.

    Returns:
        The model.

    Raises:
        TypeError: if `model` is not a module.
        ValueError: if a weight carries a further parametrization besides ours or is sharded among ranks. Also if it has
            its values elsewhere than V (accelerate's offload), or has never received any. Nothing is changed then.

    Examples:
        >>> import torch, orthonorm as on
        >>> on.fold_(on.OrthogonalLinear(8, 4))
        Linear(in_features=8, out_features=4, bias=True)

    Source: after training, the paper saves W and uses it as the standard module does.
    """
    found = list(orthogonal_weights(model))
    for key, module, name, _ in found:
        count = len(getattr(module.parametrizations, name))
        if count > 1:
            raise ValueError(
                f"{key} carries {count} parametrizations, "
                "and folding ours alone would change the others. Remove them first (remove_parametrizations)."
            )
        if is_sharded(unconstrained(module, name)):
            raise ValueError(
                f"{key} is sharded among ranks (DTensor), and a folded model is whole. Gather the state (torch's "
                "get_model_state_dict with full_state_dict=True), load it into an unsharded model and fold that."
            )
    homes = _homes(model)
    _give_own_lists(model)
    with torch.no_grad():
        values = [getattr(module, name).clone() for _, module, name, _ in found]
    for (key, module, name, _), value in zip(found, values, strict=True):
        if unconstrained(module, name).is_meta != value.is_meta:
            raise ValueError(
                f"V of {key} is on the meta device while its values lie elsewhere, as where accelerate has offloaded "
                "them, so the weight cannot take its place. Load the file into a model on the CPU and fold that, or "
                "undo an offload from memory (accelerate.hooks.remove_hook_from_submodules) first."
            )
    for (_, module, name, owner), value in zip(found, values, strict=True):
        _fold_weight(module, name, homes[id(module), name], value)
        _move_before(module._parameters, name, owner.followers)
    return model


def _give_own_lists(model: nn.Module) -> None:
    """Let no two modules share one `parametrizations` (`b.parametrizations = a.parametrizations`), which is emptied."""
    seen: set[int] = set()
    for module in model.modules():
        lists = module._modules.get("parametrizations")
        if isinstance(lists, nn.ModuleDict) and id(lists) in seen:
            module._modules["parametrizations"] = nn.ModuleDict(dict(lists.items()))
        seen.add(id(lists))


def _homes(model: nn.Module) -> dict[tuple[int, str], nn.Parameter]:
    """Return what each weight is written into, by module and name: V, or a new parameter where V serves another."""
    homes: dict[tuple[int, str], nn.Parameter] = {}
    for users in find_users(model).values():
        taken = any(user.owner is None for user in users)
        weights: dict[Hashable, nn.Parameter] = {}
        for user in users:
            if user.owner is None:
                continue
            V = unconstrained(user.module, user.name)
            weight = (user.owner.key(), *map(id, user.owner.sources(V)))
            if weight not in weights:
                weights[weight] = nn.Parameter(torch.empty_like(V), V.requires_grad) if taken else V
                taken = True
            homes[id(user.module), user.name] = weights[weight]
    return homes


def _fold_weight(module: nn.Module, name: str, home: nn.Parameter, value: Tensor) -> None:
    give_own_class(module)  # without it, folding a copy would break the model that it was copied from
    parametrize.remove_parametrizations(module, name, leave_parametrized=False)
    module._parameters[name] = home
    home.__class__ = nn.Parameter  # on the meta device V is of a class of its own
    with torch.no_grad():
        home.copy_(value)
    if not parametrize.is_parametrized(module):
        for key, hook in list(module._load_state_dict_pre_hooks.items()):
            if getattr(hook, "hook", None) is load_plain_weight:
                del module._load_state_dict_pre_hooks[key]
        module.__class__ = _plain_class(type(module))  # type: ignore[assignment]
        restore(module)


def _move_before(parameters: dict[str, Any], name: str, followers: tuple[str, ...]) -> None:
    """Put an entry back where it was: optimizers and their state_dicts know parameters by their order."""
    keys = [key for key in parameters if key != name]
    for key in [name, *keys[place_before(keys, followers) :]]:
        parameters[key] = parameters.pop(key)


def _plain_class(cls: type) -> type:
    """Return torch's class for one of our modules, and any other class as it is."""
    if cls.__module__ != "orthonorm.layers":
        return cls
    return next(base for base in cls.__mro__ if base.__module__.startswith("torch."))


def fold(model: nn.Module) -> nn.Module:
    """Return a folded copy of the model; the model itself goes on training.

    Args:
        model: any module that `copy.deepcopy` takes.

    Returns:
        A plain model that computes the same. Its orthogonal weights are ordinary parameters with the values that they
        have now, and its `state_dict` has the keys and shapes of the model before conversion. `fold_` does it in place.

    Raises:
        TypeError, ValueError: as `fold_`; TypeError too if `copy.deepcopy` of the model loses its orthogonal weights.

    Examples:
        >>> import torch, orthonorm as on
        >>> layer = on.OrthogonalLinear(8, 4)
        >>> plain = on.fold(layer)
        >>> torch.equal(plain.weight, layer.weight), type(plain).__name__
        (True, 'Linear')

    Source: after training, the paper saves W and uses it as the standard module does.
    """
    plain = copy.deepcopy(model)
    # torch gives a parametrized module a `__deepcopy__`, and a wrapper that hands it on is copied as the module in it.
    lost = {key for key, *_ in orthogonal_weights(model)} - {key for key, *_ in orthogonal_weights(plain)}
    if lost:
        raise TypeError(
            f"copy.deepcopy of this {type(model).__name__} has no {min(lost)}, as where a wrapper's __getattr__ hands "
            "on __deepcopy__ of the layer in it, so the copy computes something else. Let __getattr__ raise "
            "AttributeError for names with two underscores, or use fold_ on the model itself."
        )
    return fold_(plain)
