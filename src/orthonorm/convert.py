"""Conversion of a whole model: which layers, how, and all or nothing."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import nn

from .functional.grouping import check_group_arguments, row_limit
from .functional.roots import choose_method
from .functional.rows import as_rows
from .layer_rules import BY_DEFAULT, Target, find_rule, known_types
from .nearest_name import refusing_unknown_options
from .parametrizations.arguments import check_blocks, check_center, check_scale
from .parametrizations.registration import build, orthogonal_weights, register, row_layout, warnings_last
from .parametrizations.rollback import all_or_nothing
from .parametrizations.weight_norm import OrthogonalWeightNorm

__all__ = ["OLMConfig", "default_filter", "orthogonalize_"]

Filter = Callable[[nn.Module, str], bool]


@refusing_unknown_options
@dataclass(frozen=True, kw_only=True)
class OLMConfig:
    """How `orthogonalize_` treats every layer that it meets.

    Args:
        group_size: rows a group *at most*: it is cut to each layer's limit. None for the limit itself.
        center: subtract each row's mean first, as the paper does.
        grouping: `"balanced"` (groups as even as possible) or `"tail"` (full groups and a smaller last one).
        scale: False; True for a learned factor a row that starts at the norms of the rows; or a fixed number.
        method: how Sigma^{-1/2} is computed: `"eigh"`, `"newton"`, `"fused"`, or `"auto"`, which is `"eigh"` on the CPU
            and `"newton"` elsewhere.
        blocks: number of equal blocks of rows, or their sizes, that groups must not straddle (the q, k and v of a fused
            projection, heads); None for what the type of the layer says.
        input_weights: also take `weight_ih` of recurrent layers, not only `weight_hh`.

    Raises:
        TypeError, ValueError: if an argument could not be right for any layer.

    Example:
        >>> import orthonorm as on
        >>> on.OLMConfig(group_size=64).grouping
        'balanced'

    Source: the paper's experiments, which use groups of 64.
    """

    group_size: int | None = None
    center: bool = True
    grouping: str = "balanced"
    scale: bool | float = False
    method: str = "auto"
    blocks: int | Sequence[int] | None = None
    input_weights: bool = False

    def __post_init__(self) -> None:
        """Refuse at construction what no layer could take."""
        check_group_arguments(self.group_size, self.grouping)
        choose_method(self.method, torch.device("cpu"))
        check_center(self.center)
        check_blocks(self.blocks)
        check_scale(self.scale)

    def options_for(self, target: Target, d: int | None) -> dict[str, Any]:
        """Return the options of `orthogonal_weight_norm` for rows of length d, the group size cut to its limit."""
        options = asdict(self)
        del options["input_weights"]
        if not target.takes_blocks or self.blocks is None:
            options["blocks"] = target.blocks
        options |= target.options
        if d is not None and options["group_size"]:
            options["group_size"] = min(options["group_size"], max(1, row_limit(d, options["center"])))
        return options


class _Plan(NamedTuple):
    module: nn.Module
    name: str
    parametrization: OrthogonalWeightNorm


def _row_length(module: nn.Module, name: str) -> int | None:
    """Return the length of a tensor's rows; None where it has none, which is refused later by name."""
    weight = module._parameters.get(name)
    if weight is None or isinstance(weight, nn.parameter.UninitializedParameter):
        return None
    if weight.ndim < 2 or not weight.is_floating_point():
        return None
    groups, transposed = row_layout(module) if name == "weight" else (1, False)
    return as_rows(weight.detach(), groups=groups, transposed=transposed).shape[-1]


def default_filter(model: nn.Module) -> Filter:
    """Return the filter that takes every Conv and Linear but what has nothing to gain from it.

    Left out are depthwise convolutions (one input channel a group), layers of fewer than 3 inputs a row, and the last
    Linear of the model, its classifier, which the paper keeps plain. Recurrent, attention and embedding layers are
    taken only when a filter chooses them: orthogonal gates or tables are another model, not a better start of it.

    Args:
        model: the whole model, of which the last Linear is left out.

    Example:
        >>> from torch import nn
        >>> import orthonorm as on
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(8, 2))
        >>> usual = on.default_filter(model)
        >>> [name for name, module in model.named_modules() if usual(module, name) and name != "0"]
        ['1']
    """
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    last = linears[-1] if linears else None

    def keep(module: nn.Module, _: str) -> bool:
        if not isinstance(module, BY_DEFAULT) or module is last:
            return False
        if isinstance(module, nn.modules.conv._ConvNd) and 1 < module.groups == module.in_channels:
            return False
        d = _row_length(module, "weight")
        return d is None or d >= 3  # what has no weight of its own is refused by name, with the cure

    return keep


def orthogonalize_(model: nn.Module, config: OLMConfig | None = None, filter_fn: Filter | None = None) -> nn.Module:
    """Make the weights of a model's layers orthogonal, in place, and keep them so while it trains.

    Each chosen layer gets `orthogonal_weight_norm` on its weights: `W = Sigma^{-1/2} (V - mean)`, where V starts as the
    weight that was there. Parameters stay the same objects, a plain checkpoint loads as before, and nothing is changed
    if any layer is refused. Weights that layers share stay shared.

    Which tensors of a layer become orthogonal is a table, `orthonorm.layer_rules`: the weight of a Linear, convolution
    or Embedding (but its padding row), `weight_hh` of a recurrent layer or cell (uncentred, each gate one group), the
    projections of `nn.MultiheadAttention` (q, k and v each by itself) with its output projection.

    The effective rate of a layer is `lr / |V|^2`, and V starts at the size of the weight that was there: a layer that
    starts small (as transformers do) can diverge at a usual rate. `inspect` shows the size, `recenter_` sets it.

    Args:
        model: any module.
        config: how; the default is one group for each layer's limit, centred, without scale.
        filter_fn: `(module, fqn) -> bool`, which layers. None takes every Conv and Linear but depthwise convolutions,
            layers of fewer than 3 inputs, and the last Linear (the classifier).

    Returns:
        The model.

    Raises:
        TypeError: if `model` is not a module, `config` no `OLMConfig` or `filter_fn` no function of two arguments; if
            the filter chooses a module that the table does not know, or whose class allows no class derived from it.
        ValueError: if no layer is chosen, a chosen one is parametrized already, or a layer that shares its weight with
            a chosen one is not chosen.

    Example:
        >>> import torch, orthonorm as on
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
        >>> model = on.orthogonalize_(model, on.OLMConfig(group_size=8))
        >>> sorted(on.orthogonality_error(model))
        ['0.weight']

    Source: the paper's substitution of orthogonal linear modules for standard ones.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    config = OLMConfig() if config is None else config
    if not isinstance(config, OLMConfig):
        raise TypeError(f"config must be an OLMConfig; got {type(config).__name__}. Write OLMConfig(group_size=64).")
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


def _make_plans(chosen: list[tuple[str, nn.Module]], config: OLMConfig) -> list[_Plan]:
    """Return what is to be done, every check made and nothing changed yet."""
    plans: dict[tuple[int, str], _Plan] = {}
    for fqn, module in chosen:
        for target in _targets(module, fqn, config):
            path, _, name = target.name.rpartition(".")
            owner = module.get_submodule(path)
            if (id(owner), name) not in plans:  # an attention's output projection is a Linear of its own, too
                options = config.options_for(target, _row_length(owner, name))
                label = f"{fqn}.{target.name}" if fqn else target.name
                plans[id(owner), name] = _Plan(owner, name, build(owner, name, options, label=label))
    return list(plans.values())


def _targets(module: nn.Module, fqn: str, config: OLMConfig) -> list[Target]:
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
