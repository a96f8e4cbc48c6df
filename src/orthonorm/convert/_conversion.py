"""Conversion of a whole model, and the plan of it: all chosen layers or none."""

from collections import Counter
from collections.abc import Iterable
from inspect import signature
from typing import Any

from torch import nn

from orthonorm.parametrizations._registration import register, warnings_last
from orthonorm.parametrizations._rollback import all_or_nothing

from ._choice import Filter
from ._config import OrthogonalConfig
from ._decisions import FROZEN, ORTHOGONAL_ALREADY, Step, decide
from ._plan import ConversionPlan

__all__ = ["conversion_plan", "orthogonalize_"]


def conversion_plan(
    model: nn.Module,
    config: OrthogonalConfig | None = None,
    filter_fn: Filter | None = None,
    *,
    exclude: Iterable[str] = (),
) -> ConversionPlan:
    """Return what `orthogonalize_` would do with each weight of a model, and why, without changing it.

    Each tensor of two or more dimensions has a row: converted, left as it is, or refused (`orthogonalize_` raises the
    error that the row holds). The operations of the transformation are estimated from the sizes, as about
    `10 s^2 d + 24 s^3` for a group of `s` rows of length `d`. A layer of many rows in one group is expensive, and
    `group_size` makes it cheap. The model may be on the meta device.

    Args:
        model: any module.
        config: how, as for `orthogonalize_`.
        filter_fn: `(module, name) -> bool`, which layers, as for `orthogonalize_`.
        exclude: names and shell patterns of what is left as it is, as for `orthogonalize_`.

    Returns:
        The plan, which prints as a table.

    Raises:
        TypeError, ValueError: if an argument is not one that `orthogonalize_` takes.

    Examples:
        >>> import torch, orthonorm as on
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
        >>> for weight in on.conversion_plan(model).weights:
        ...     print(weight.name, weight.decision, "|", weight.groups, "|", weight.why)
        0.weight converted | 1 group of 16 rows | by default
        2.weight left |  | output layer: the last Linear as registered

    Source: the paper's substitution of orthogonal linear modules for standard ones.
    """
    with warnings_last():
        return ConversionPlan(tuple(step.row() for step in _decide(model, config, filter_fn, exclude)))


def orthogonalize_(
    model: nn.Module,
    config: OrthogonalConfig | None = None,
    filter_fn: Filter | None = None,
    *,
    exclude: Iterable[str] = (),
) -> nn.Module:
    """Make the weights of a model's layers orthogonal, in place, and keep them so while it trains.

    Each chosen layer gets `orthogonal_weight_norm` on its weights. Call `conversion_plan` with the same arguments to
    see beforehand which, and why the others are left. Parameters stay the same objects, and a plain checkpoint loads as
    before. Nothing is changed if any layer is refused. Weights that layers share stay shared. A learned scale is a new
    parameter, so build the optimizer after the conversion.

    Without a filter it takes every Linear, convolution and attention projection that trains, except the output layer,
    depthwise convolutions and rows of fewer than 3 entries. The output layer is what the model names (`get_classifier`
    of timm, `get_output_embeddings` of transformers), and otherwise the last Linear as registered and, if a
    convolution follows it, the last layer of all.

    These tensors of a layer become orthogonal:

    - the weight of a Linear, a convolution, an Embedding or an EmbeddingBag, except its padding row
    - `weight_hh` of a recurrent layer or cell, each gate as one group without centring
    - q, k, v and the output projection of `nn.MultiheadAttention`, each by itself
    - q, k and v of a Linear named `qkv`, `in_proj` or `c_attn` that has three times as many outputs as inputs
    - the projections of a TransformerEncoderLayer or TransformerDecoderLayer: its attention and its Linear layers
    - the `Conv1D` of transformers, which stores its weight as `(in, out)`, by its outputs
    - each expert of transformers' stacks of experts `(E, n, d)` by itself, its gate and its up projection too

    Args:
        model: any module.
        config: the options; by default each weight has as few groups as possible, and no scale.
        filter_fn: `(module, name) -> bool`, which layers; `name` is the fully qualified name of the module. None for
            the choice above. Frozen weights (`requires_grad=False`) are left as they are whatever it says; call
            `orthogonal_weight_norm(layer)` to convert one on purpose.
        exclude: names and shell patterns (`"head"`, `"*.attn.qkv"`) of weights, layers or blocks that are left as they
            are, out of those that were chosen.

    Returns:
        The model.

    Raises:
        TypeError: if `model` is not a module, `config` no `OrthogonalConfig`, `filter_fn` no function of two arguments
            or `exclude` no texts. Also if the filter chooses a module of a type that is not in the list above, or one
            from whose class no class can be derived.
        ValueError: if no layer is converted, a chosen one is parametrized already, or `exclude` has a name that matches
            nothing. Also if the filter does not choose a layer that shares its weight with a chosen one.

    Examples:
        >>> import torch, orthonorm as on
        >>> model = torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
        >>> model = on.orthogonalize_(model, on.OrthogonalConfig(group_size=8))
        >>> sorted(on.orthogonality_error(model))
        ['0.weight']

    Source: the paper's substitution of orthogonal linear modules for standard ones.
    """
    with warnings_last():
        steps = _decide(model, config, filter_fn, exclude)
        refused = next((step.error for step in steps if step.error is not None), None)
        if refused is not None:
            raise refused
        if all(step.parametrization is None for step in steps):
            raise ValueError(_nothing_converted(model, steps, default=filter_fn is None))
        _carry_out(steps)
    return model


def _decide(
    model: nn.Module, config: OrthogonalConfig | None, filter_fn: Filter | None, exclude: Iterable[str]
) -> list[Step]:
    """Return the decision on each weight, once the arguments are of the right kinds."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    config = OrthogonalConfig() if config is None else config
    if not isinstance(config, OrthogonalConfig):
        got = f"the class {config.__name__}" if isinstance(config, type) else type(config).__name__
        cure = config.__name__ if isinstance(config, type) else "OrthogonalConfig"
        raise TypeError(f"config must be an OrthogonalConfig; got {got}. Write {cure}(), with its brackets.")
    if filter_fn is not None:
        _check_filter(filter_fn)
    return decide(model, config, filter_fn, exclude)


def _carry_out(steps: list[Step]) -> None:
    """Register what was decided, all of it or nothing."""
    with all_or_nothing([(step.module, step.name) for step in steps if step.parametrization is not None]):
        scales: dict[int, Any] = {}
        for step in steps:
            if step.parametrization is not None:
                key = id(step.tensor)
                register(step.module, step.name, step.parametrization)
                step.parametrization.scale = scales.setdefault(key, step.parametrization.scale)


def _check_filter(filter_fn: Any) -> None:
    fits = callable(filter_fn)
    if fits:
        try:
            signature(filter_fn).bind(nn.Identity(), "")
        except (TypeError, ValueError):
            fits = False
    if not fits:
        raise TypeError(
            "filter_fn must be a function of two arguments, (module, fully qualified name) -> bool, or None; got "
            f"{filter_fn!r}. Write filter_fn=lambda module, name: ..."
        )


def _nothing_converted(model: nn.Module, steps: list[Step], default: bool) -> str:
    """Return the message for a conversion that has nothing to do: why each weight is left, and the cure."""
    reasons = Counter(step.why for step in steps)
    if reasons and set(reasons) == {ORTHOGONAL_ALREADY}:
        return (
            f"every weight of this {type(model).__name__} is {ORTHOGONAL_ALREADY}. "
            "Call fold_ first to convert them again."
        )
    who = "the default choice" if default else "filter_fn"
    counts = "; ".join(f"{count} left ({reason})" for reason, count in reasons.items())
    if ORTHOGONAL_ALREADY in reasons:
        cure = "Call fold_ first to convert those again that are orthogonal already."
    elif default:
        cure = (
            "Pass filter_fn=lambda module, name: ... to choose layers yourself, or call orthogonal_weight_norm(layer) "
            "on one, orthogonal_weight_norm(module, name) on a tensor that no layer type names."
        )
    else:
        cure = "It is called with (module, fully qualified name) and returns True for the layers to convert."
    if FROZEN in reasons:
        cure += " A frozen weight is converted by orthogonal_weight_norm(layer), or after requires_grad_(True)."
    return f"{who} converts no weight of this {type(model).__name__}: {counts or 'it has none'}. {cure}"
