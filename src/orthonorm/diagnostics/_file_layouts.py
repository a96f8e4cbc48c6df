"""How a tensor of a file became, or is to become, orthogonal: from what the file says, its names and its shapes."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from orthonorm.convert import OrthogonalConfig
from orthonorm.convert._layer_rules import Target
from orthonorm.functional._rows import as_rows
from orthonorm.parametrizations import OrthogonalWeightNorm
from orthonorm.parametrizations._options import Options

__all__ = ["Layout", "build_owner", "plain_key", "possible_layouts", "saved_layout", "saved_owner"]

Layout = dict[str, Any]
"""The arguments of `OrthogonalWeightNorm` that say how the rows lie and are not the default."""

_MARK = ".parametrizations."


def plain_key(key: str) -> str:
    """Return the plain model's name of a V, "" for a tensor that is none."""
    prefix, mark, rest = f".{key}".rpartition(_MARK)
    is_free = mark and rest.endswith(".original")
    return f"{prefix}.{rest.removesuffix('.original')}".strip(".") if is_free else ""


def build_owner(
    key: str,
    V: Tensor,
    config: OrthogonalConfig,
    tensors: dict[str, Tensor],
    layout: Layout,
    scale: Tensor | None = None,
) -> OrthogonalWeightNorm:
    """Return the parametrization that a tensor of this name would have: gates and fused projections by their names."""
    name = key.rpartition(".")[2]
    _, n, d = as_rows(V, **{name: value for name, value in layout.items() if name != "constant_row"}).shape
    target = Target(name)
    if name.startswith("weight_hh") and (gates := _gates(key, tensors)):
        target = Target(name, {"center": False, "group_size": None}, blocks=gates)
    elif name.startswith("weight_ih"):
        target = Target(name, blocks=_gates(key, tensors), input_weight=True)
    elif name == "in_proj_weight":
        target = Target(name, blocks=3)
    elif name == "gate_up_proj" and layout.get("stacked") and n % 2 == 0:  # of the experts of transformers
        target = Target(name, blocks=2, takes_blocks=False)
    options = replace(config.options_for(target, d), scale=None if scale is None else "learned")
    if layout.get("groups", 1) > 1:
        options = replace(options, blocks=None)  # a convolution's groups are blocks already
    return _with_scale(OrthogonalWeightNorm(V, options, **layout, label=key), scale)


def saved_layout(saved: dict[str, Any]) -> Layout:
    """Return the layout that a file remembers."""
    return {name: saved[name] for name in ("groups", "transposed", "stacked", "constant_row")}


def saved_owner(key: str, V: Tensor, saved: dict[str, Any], scale: Tensor | None) -> OrthogonalWeightNorm:
    """Return the parametrization that a file remembers: its layout, groups, centring and fixed scale.

    Raises:
        ValueError: if its groups do not fit V.
    """
    learned = Options(scale=None if scale is None else "learned")
    owner = OrthogonalWeightNorm(V, learned, **saved_layout(saved), label=key)
    owner.sizes, owner.center, owner.columns = tuple(saved["sizes"]), saved["center"], saved["columns"]
    if sum(owner.sizes) != owner.rows(V).shape[1]:
        raise ValueError(
            f"{key} has a V of shape {tuple(V.shape)}, which the groups that the file remembers, of {owner.sizes} "
            "rows, do not fit. Leave it out by a filter, or load the model and call inspect on it."
        )
    if saved["scale"] is not None:
        owner.scale = saved["scale"]
    return _with_scale(owner, scale)


def _with_scale(owner: OrthogonalWeightNorm, scale: Tensor | None) -> OrthogonalWeightNorm:
    """Return the parametrization with the values of a learned scale."""
    if scale is not None:
        with torch.no_grad():
            owner.scale.copy_(scale.flatten())  # type: ignore[union-attr]
    return owner


def _gates(key: str, tensors: dict[str, Tensor]) -> int | None:
    """Return how many gates a recurrent layer has, by the shapes of its weights; None where they do not say."""
    prefix, _, name = key.rpartition("weight_")  # weight_ih_l0_reverse, or weight_ih of a cell
    shapes = {plain_key(other) or other: tensor.shape for other, tensor in tensors.items()}
    recurrent, projection = (shapes.get(f"{prefix}weight_{kind}{name[2:]}") for kind in ("hh", "hr"))
    if recurrent is None:
        return None
    rows, size = recurrent[0], (projection or recurrent)[1]
    return rows // size if size and rows % size == 0 else None


def possible_layouts(key: str, V: Tensor, tensors: dict[str, Tensor], scale: Tensor | None) -> list[Layout]:
    """Return how the rows of V may lie, the likeliest first: a scale and a bias have an entry for each output.

    Raises:
        ValueError: if a learned scale fits no layout.
    """
    if V.ndim == 3 and key.rpartition(".")[2] != "weight":  # under which name every convolution has its kernel
        return _layouts_of_stack(key, V, scale)
    if scale is not None and scale.numel() != len(V):
        return [_layout_of_scale(key, V, scale.numel())]
    if V.ndim < 3 or V.shape[1] == 0:
        return [{}]
    prefix, _, name = key.rpartition("weight")
    bias = tensors.get(f"{prefix}bias") if name == "" else None
    outputs = scale if scale is not None else bias
    if outputs is None:
        return [{}, {"transposed": True}]
    found: list[Layout] = [{}] if outputs.numel() == len(V) else []
    if transposed := _transposed(V, outputs.numel()):
        found.append(transposed)
    return found or [{}]


def _layouts_of_stack(key: str, V: Tensor, scale: Tensor | None) -> list[Layout]:
    """Return how the matrices of a stack may lie: (E, n, d), or (E, d, n) with the outputs last."""
    layouts: list[Layout] = [{"stacked": True}, {"stacked": True, "transposed": True}]
    if scale is None:
        return layouts
    E, n, d = V.shape
    found = [layout for layout, outputs in zip(layouts, (n, d), strict=True) if scale.numel() == E * outputs]
    if not found:
        raise ValueError(
            f"{key} has a scale of {scale.numel()} entries for a stack V of shape {(E, n, d)}, which has {E * n} rows, "
            f"or {E * d} where it is transposed. Leave it out by a filter, or load the model and call inspect on it."
        )
    return found


def _transposed(V: Tensor, outputs: int) -> Layout:
    """Return the layout of a transposed kernel `(in, out / groups, *kernel)` of so many outputs; empty if none."""
    groups = outputs // V.shape[1]
    fits = groups > 0 and outputs == groups * V.shape[1] and len(V) % groups == 0
    return {"groups": groups, "transposed": True} if fits else {}


def _layout_of_scale(key: str, V: Tensor, entries: int) -> Layout:
    """Return the layout in which V has as many outputs as its scale has entries, which are not its first dimension."""
    zero = V.flatten(1).any(1).logical_not().nonzero().flatten().tolist()
    if V.ndim == 2 and entries == len(V) - 1 and len(zero) == 1:
        return {"constant_row": zero[0]}
    if V.ndim > 2 and V.shape[1] and (layout := _transposed(V, entries)):
        return layout
    raise ValueError(
        f"{key} has a scale of {entries} entries for a V of shape {tuple(V.shape)}, which fits neither its rows, nor "
        "those of a transposed kernel, nor a table with one padding row of zeros. Leave it out by a filter, or load "
        "the model and call inspect on it."
    )
