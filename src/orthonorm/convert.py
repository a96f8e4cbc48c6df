"""Conversion of a whole model: which layers, how, and all or nothing."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from .functional.grouping import check_group_arguments, row_limit
from .functional.roots import choose_method
from .functional.rows import as_rows
from .parametrizations.registration import build, orthogonal_weights, register, row_layout

__all__ = ["OLMConfig", "default_filter", "orthogonalize_"]

Filter = Callable[[nn.Module, str], bool]


@dataclass(frozen=True, kw_only=True)
class OLMConfig:
    """How `orthogonalize_` treats every layer that it meets.

    Args:
        group_size: rows a group *at most*: it is cut to each layer's limit. None for the limit itself.
        center: subtract each row's mean first, as the paper does.
        grouping: `"balanced"` (groups as even as possible) or `"tail"` (full groups and a smaller last one).
        scale: False; True for a learned factor a row that starts at the norms of the rows; or a fixed number.
        method: how Sigma^{-1/2} is computed: `"eigh"`, `"newton"`, or `"auto"`.

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

    def __post_init__(self) -> None:
        """Refuse at construction what no layer could take."""
        check_group_arguments(self.group_size, self.grouping)
        choose_method(self.method, torch.device("cpu"))
        if not isinstance(self.scale, bool) and not (
            isinstance(self.scale, int | float) and 0 < self.scale < float("inf")
        ):
            raise ValueError(
                f"scale must be False, True (learned, one a row) or a positive number; got {self.scale!r}."
            )

    def options_for(self, module: nn.Module) -> dict[str, Any]:
        """Return the options of `orthogonal_weight_norm` for one layer, with the group size cut to its limit."""
        groups, transposed = row_layout(module)
        d = as_rows(module.weight.detach(), groups=groups, transposed=transposed).shape[-1]  # type: ignore[union-attr]
        size = self.group_size and min(self.group_size, max(1, row_limit(d, self.center)))
        return asdict(self) | {"group_size": size}


_CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
_SUPPORTED = (nn.Linear, *_CONVOLUTIONS)


def _is_lazy(module: nn.Module) -> bool:
    return isinstance(module._parameters.get("weight"), nn.parameter.UninitializedParameter)


def default_filter(model: nn.Module) -> Filter:
    """Return the filter that takes every Conv and Linear but what has nothing to gain from it.

    Left out are depthwise convolutions (one input channel a group), layers of fewer than 3 inputs a row, and the last
    Linear of the model, its classifier, which the paper keeps plain.
    """
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    last = linears[-1] if linears else None

    def keep(module: nn.Module, _: str) -> bool:
        if not isinstance(module, _SUPPORTED) or module is last:
            return False
        if isinstance(module, nn.modules.conv._ConvNd) and 1 < module.groups == module.in_channels:
            return False
        if _is_lazy(module):
            return True  # a lazy module: that it must see a batch first is said where it is converted
        groups, transposed = row_layout(module)
        return as_rows(module.weight.detach(), groups=groups, transposed=transposed).shape[-1] >= 3

    return keep


def orthogonalize_(model: nn.Module, config: OLMConfig | None = None, filter_fn: Filter | None = None) -> nn.Module:
    """Make the weights of a model's layers orthogonal, in place, and keep them so while it trains.

    Each chosen layer gets `orthogonal_weight_norm` on its weight: `W = Sigma^{-1/2} (V - mean)`, where V starts as the
    weight that was there. Parameters stay the same objects, a plain checkpoint loads as before, and nothing is changed
    if any layer is refused. Weights that layers share stay shared.

    Args:
        model: any module.
        config: how; the default is one group for each layer's limit, centred, without scale.
        filter_fn: `(module, fqn) -> bool`, which layers. None takes every Conv and Linear but depthwise convolutions,
            layers of fewer than 3 inputs, and the last Linear (the classifier).

    Returns:
        The model.

    Raises:
        TypeError: if the filter chooses a module that is neither a Linear nor a convolution.
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
    if filter_fn is not None and not callable(filter_fn):
        raise TypeError(
            f"filter_fn must be a function (module, fully qualified name) -> bool, or None; got {filter_fn!r}."
        )
    choose = default_filter(model) if filter_fn is None else filter_fn
    chosen = [(fqn, module) for fqn, module in model.named_modules() if choose(module, fqn)]
    if not chosen:
        raise ValueError(_nothing_chosen(model, default=filter_fn is None))
    plans = []
    for fqn, module in chosen:
        if not isinstance(module, _SUPPORTED):
            raise TypeError(
                f"orthogonalize_ converts Linear and convolution layers; the filter chose {fqn or 'the model'!r}, "
                f"a {type(module).__name__}. Narrow the filter, or call orthogonal_weight_norm(module, name) on it."
            )
        label = f"{fqn}.weight" if fqn else "weight"
        convertible = not parametrize.is_parametrized(module, "weight") and not _is_lazy(module)
        options = config.options_for(module) if convertible else asdict(config)
        plans.append((module, build(module, "weight", options, label=label)))
    _check_shared_weights(model, [module for module, _ in plans])
    scales: dict[int, Any] = {}
    for module, parametrization in plans:
        key = id(module._parameters["weight"])
        register(module, "weight", parametrization)
        parametrization.scale = scales.setdefault(key, parametrization.scale)
    return model


def _nothing_chosen(model: nn.Module, default: bool) -> str:
    candidates = sum(isinstance(module, _SUPPORTED) for module in model.modules())
    if 0 < candidates == sum(1 for _ in orthogonal_weights(model)):
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


def _check_shared_weights(model: nn.Module, chosen: list[nn.Module]) -> None:
    """Refuse to convert one user of a shared weight and not the others: they would compute with different weights."""
    weights = {id(module._parameters["weight"]) for module in chosen}
    taken = set(map(id, chosen))
    for fqn, module in model.named_modules():
        for name, parameter in module._parameters.items():
            if id(parameter) in weights and not (id(module) in taken and name == "weight"):
                raise ValueError(
                    f"{fqn}.{name} shares its tensor with a chosen layer but is not chosen itself, so the two would "
                    "no longer compute with one weight. Choose both, or leave both out."
                )
