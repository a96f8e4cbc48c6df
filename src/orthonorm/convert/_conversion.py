"""Conversion of a whole model: all chosen layers or none."""

from inspect import signature
from typing import Any, NamedTuple

from torch import nn

from orthonorm.parametrizations._registration import build, orthogonal_weights, register, warnings_last
from orthonorm.parametrizations._rollback import all_or_nothing
from orthonorm.parametrizations._weight_norm import OrthogonalWeightNorm

from ._choice import Filter, default_filter, row_length
from ._config import OrthogonalConfig
from ._layer_rules import BY_DEFAULT, Target, find_rule, known_types

__all__ = ["orthogonalize_"]


class _Plan(NamedTuple):
    module: nn.Module
    name: str
    parametrization: OrthogonalWeightNorm


def orthogonalize_(
    model: nn.Module, config: OrthogonalConfig | None = None, filter_fn: Filter | None = None
) -> nn.Module:
    """Make the weights of a model's layers orthogonal, in place, and keep them so while it trains.

    Each chosen layer gets `orthogonal_weight_norm` on its weights: `W = Sigma^{-1/2} (V - mean)`, where V starts as the
    weight that was there. Parameters stay the same objects, a plain checkpoint loads as before, and nothing is changed
    if any layer is refused. Weights that layers share stay shared.

    Which tensors of a layer become orthogonal is a table: the weight of a Linear, convolution or Embedding (but its
    padding row), `weight_hh` of a recurrent layer or cell (uncentred, each gate one group), the projections of
    `nn.MultiheadAttention` (q, k and v each by itself) with its output projection.

    The effective rate of a layer is `lr / |V|^2`, and V starts at the size of the weight that was there: a layer that
    starts small (as transformers do) can diverge at a usual rate. `inspect` shows the size, `recenter_` sets it.

    Args:
        model: any module.
        config: how; the default is `OrthogonalConfig()`.
        filter_fn: `(module, fqn) -> bool`, which layers. None takes every Conv and Linear but depthwise convolutions,
            layers of fewer than 3 inputs, and the last Linear (the classifier).

    Returns:
        The model.

    Raises:
        TypeError: if `model` is not a module, `config` no `OrthogonalConfig` or `filter_fn` no function of two
            arguments; if the filter chooses a module that the table does not know, or whose class allows no class
            derived from it.
        ValueError: if no layer is chosen, a chosen one is parametrized already, or a layer that shares its weight with
            a chosen one is not chosen.

    Example:
        >>> import torch, orthonorm as on
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
        >>> model = on.orthogonalize_(model, on.OrthogonalConfig(group_size=8))
        >>> sorted(on.orthogonality_error(model))
        ['0.weight']

    Source: the paper's substitution of orthogonal linear modules for standard ones.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    config = OrthogonalConfig() if config is None else config
    if not isinstance(config, OrthogonalConfig):
        raise TypeError(
            f"config must be an OrthogonalConfig; got {type(config).__name__}. Write OrthogonalConfig(group_size=64)."
        )
    if filter_fn is not None:
        _check_filter(filter_fn)
    choose = default_filter(model) if filter_fn is None else filter_fn
    chosen = [(fqn, module) for fqn, module in model.named_modules() if choose(module, fqn)]
    if not chosen:
        raise ValueError(_nothing_chosen(model, default=filter_fn is None))
    with warnings_last():
        plans = _make_plans(chosen, config)
        _check_shared_weights(model, plans)
        with all_or_nothing([(plan.module, plan.name) for plan in plans]):
            scales: dict[int, Any] = {}
            for plan in plans:
                key = id(plan.module._parameters[plan.name])
                register(plan.module, plan.name, plan.parametrization)
                plan.parametrization.scale = scales.setdefault(key, plan.parametrization.scale)
    return model


def _check_filter(filter_fn: Any) -> None:
    fits = callable(filter_fn)
    if fits:
        try:
            signature(filter_fn).bind(nn.Identity(), "")
        except TypeError:
            fits = False
        except ValueError:  # a function in C may not tell its signature; the call itself will
            pass
    if not fits:
        raise TypeError(
            "filter_fn must be a function of two arguments, (module, fully qualified name) -> bool, or None; got "
            f"{filter_fn!r}. Write filter_fn=lambda module, name: ..."
        )


def _make_plans(chosen: list[tuple[str, nn.Module]], config: OrthogonalConfig) -> list[_Plan]:
    """Return what is to be done, every check made and nothing changed yet."""
    plans: dict[tuple[int, str], _Plan] = {}
    for fqn, module in chosen:
        for target in _targets(module, fqn, config):
            path, _, name = target.name.rpartition(".")
            owner = module.get_submodule(path)
            if (id(owner), name) not in plans:  # an attention's output projection is a Linear of its own, too
                options = config.options_for(target, row_length(owner, name))
                label = f"{fqn}.{target.name}" if fqn else target.name
                row = target.options.get("constant_row")
                plans[id(owner), name] = _Plan(owner, name, build(owner, name, options, label=label, constant_row=row))
    return list(plans.values())


def _targets(module: nn.Module, fqn: str, config: OrthogonalConfig) -> list[Target]:
    """Return the tensors of a chosen module that are to become orthogonal."""
    rule = find_rule(module)
    label = fqn or "the model"
    if rule is None:
        raise TypeError(
            f"orthogonalize_ knows {known_types()}; the filter chose {label!r}, a {type(module).__name__}. Narrow the "
            "filter, or call orthogonal_weight_norm(module, name) on it."
        )
    try:
        return [target for target in rule(module) if config.input_weights or not target.input_weight]
    except (TypeError, ValueError) as error:
        raise type(error)(f"{label}: {error}") from None


def _nothing_chosen(model: nn.Module, default: bool) -> str:
    candidates = sum(isinstance(module, BY_DEFAULT) for module in model.modules())
    if 0 < candidates == sum(isinstance(module, BY_DEFAULT) for _, module, _, _ in orthogonal_weights(model)):
        return (
            f"every Linear and convolution layer of this {type(model).__name__} is orthogonal already. "
            "Call fold_ first to convert them anew."
        )
    if default:
        return (
            f"the default filter chose no layer of this {type(model).__name__}, which has {candidates} Linear or "
            "convolution layers: it leaves out the last Linear, depthwise convolutions and layers of fewer than 3 "
            "inputs. Pass filter_fn=lambda module, fqn: ... to choose yourself."
        )
    return (
        f"filter_fn chose no module of this {type(model).__name__}, which has {candidates} Linear or convolution "
        "layers. It is called with (module, fully qualified name) and returns True for those to convert."
    )


def _check_shared_weights(model: nn.Module, plans: list[_Plan]) -> None:
    """Refuse to convert one user of a shared weight and not the others, or the users in different ways."""
    shared: dict[int, _Plan] = {}
    for plan in plans:
        first = shared.setdefault(id(plan.module._parameters[plan.name]), plan)
        if first.parametrization.key() != plan.parametrization.key():
            raise ValueError(
                f"{plan.parametrization.label} shares its tensor with {first.parametrization.label}, but the two would "
                "be made orthogonal in different ways (their types, or a padding row, differ). Leave both out, or "
                "call orthogonal_weight_norm on both with the same options, which ties V and not a learned scale."
            )
    taken = {(id(plan.module), plan.name) for plan in plans}
    for fqn, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if id(parameter) in shared and (id(module), name) not in taken:
                raise ValueError(
                    f"{fqn}.{name} shares its tensor with a chosen layer but is not chosen itself, so the two would "
                    "no longer compute with one weight. Choose both, or leave both out."
                )
