"""What a model's orthogonal weights are like: their error, the condition number and norm of V, the norm of W."""

import math
from dataclasses import dataclass
from os import PathLike

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orthonorm._text_table import text_table
from orthonorm.functional._orthogonality import orthogonality_errors
from orthonorm.functional._precision import frobenius_norm, in_float64
from orthonorm.functional.stiefel._layout import matrix_layout
from orthonorm.parametrizations._arguments import refuse_meta
from orthonorm.parametrizations._orthogonal_weights import orthogonal_weights, unconstrained
from orthonorm.parametrizations._saved_options import sizes_in_words
from orthonorm.parametrizations._weight_norm import OrthogonalWeightNorm

from ._singular_values import condition_number, largest_singular_value

__all__ = ["Inspection", "LayerReport", "inspect", "orthogonality_error", "report_weight"]


def orthogonality_error(model: nn.Module | torch.optim.Optimizer) -> dict[str, float]:
    r"""Return how far each orthogonal weight is from orthonormal rows.

    $$\max_{\text{groups}} \max_{ij} |W W^T - I|_{ij}, \quad \text{before the scale } g$$

    It is measured on what the library's parametrization makes of V, in the dtype of the weight. Another parametrization
    registered behind it, as a mask, acts on the result and is not looked at; `inspect` names it below its table. A lost
    direction of V shows as 1 for a zero row, 1/2 for two equal rows, at least 1/n in a group of n; NaN says that V is
    not finite.

    Args:
        model: a module with orthogonal weights, or an optimizer with weights on the Stiefel manifold.

    Returns:
        The error by the weight's key in the plain model's `state_dict`, in the order of the model. For an optimizer the
        keys are the parameters' names where it was given names, and `"group.position"` where not.

    Raises:
        TypeError: if `model` is neither.
        ValueError: if it has no orthogonal weight, or one is on the meta device.

    Examples:
        >>> import torch, orthonorm as on
        >>> errors = on.orthogonality_error(torch.nn.Sequential(on.OrthogonalLinear(8, 4)))
        >>> list(errors), errors["0.weight"] < 1e-6
        (['0.weight'], True)

    Source: the constraint W W^T = I of equation (1) of the paper.
    """
    if isinstance(model, torch.optim.Optimizer):
        return _errors_on_manifold(model)
    with torch.no_grad():
        return {key: _error(owner, owner.orthonormal_rows(V)) for key, owner, V in _weights(model)}


def _errors_on_manifold(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    errors = {}
    for i, group in enumerate(optimizer.param_groups):
        names = group.get("param_names", [f"{i}.{j}" for j in range(len(group["params"]))])
        for name, weight in zip(names, group["params"] if group.get("manifold") else [], strict=False):
            blocks = matrix_layout(tuple(weight.shape), group["group_size"], group["stacked"]).blocks(weight)
            errors[name] = _largest([0.0, *(float(orthogonality_errors(block).amax()) for block in blocks)])
    if not errors:
        raise ValueError(f"this {type(optimizer).__name__} has no weight on the manifold (a group with manifold=True).")
    return errors


@dataclass(frozen=True)
class LayerReport:
    """One orthogonal weight in numbers: what it is and how it fares.

    Attributes:
        weight: key in the plain model's `state_dict`.
        shape: shape of the weight.
        groups: number of rows of each group, over all groups of a convolution; of columns, with `columns`.
        columns: whether columns are orthonormal and not rows: `tall="columns"` on a weight of more rows than
            columns.
        error: largest |W W^T - I| over the groups, before the scale and any parametrization behind the
            library's.
        condition_number: largest condition number of V over the groups, after centring; above 2e6 W has lost a
            direction.
        v_norm: |V|, the root mean square of the norms of V's rows, or of its columns with `columns`. The effective
            learning rate of W, before the scale, is `lr / v_norm**2` with SGD and `lr / v_norm` with Adam and
            AdamW, where the condition number is near 1.
        w_norm: largest singular value of the whole flattened weight, scale included (of a convolution's groups,
            the largest): 1 for one group without a scale, up to the square root of k for k groups.
        scale: the smallest and the largest scale; None without one.
    """

    weight: str
    shape: tuple[int, ...]
    groups: tuple[int, ...]
    columns: bool
    error: float
    condition_number: float
    v_norm: float
    w_norm: float
    scale: tuple[float, float] | None


_HEADINGS = ("weight", "shape", "groups", "error", "cond(V)", "|V|", "norm(W)", "scale")
_LEGEND = """\
error: largest |W W^T - I| within the groups, of columns |W^T W - I|, before the scale
norm(W): largest singular value of the whole W
|V|: norm of V's rows (columns, where they are orthonormal). Where cond(V) is near 1, the effective learning rate of
W before its scale is lr / |V|^2 with SGD, lr / |V| with Adam and AdamW; it is larger where cond(V) is larger.
A scale s multiplies it by s^2 with SGD and by s with Adam and AdamW"""


@dataclass(frozen=True)
class Inspection:
    """The reports of a model's orthogonal weights; prints as a table.

    Attributes:
        layers: one report for each orthogonal weight, in the order of the model.
        note: what was assumed, where a file does not say it; which weights another parametrization changes
            further.
    """

    layers: tuple[LayerReport, ...]
    note: str = ""

    def __str__(self) -> str:
        """Return the table, one row per weight, what its columns mean, and the note below it."""
        below = [_LEGEND, *([self.note] if self.note else [])]
        return "\n".join([*text_table(_HEADINGS, [*map(_cells, self.layers)]), *below])


def inspect(model: nn.Module) -> Inspection:
    """Return one row for each orthogonal weight of a model: groups, error, condition number and norm of V, norm of W.

    `error` looks within the groups of rows and `w_norm` at the whole matrix: two groups of a square layer are each
    orthonormal to 1e-7, and together have a norm of 1.41.

    `v_norm` is the root mean square of the norms of V's rows, |V|. The effective learning rate of W, before the scale,
    is `lr / |V|^2` with SGD and `lr / |V|` with Adam and AdamW, where the condition number of V is near 1. Call
    `renormalize_` where |V| differs widely between layers.

    Args:
        model: a module with orthogonal weights.

    Returns:
        `Inspection`, whose `layers` hold a `LayerReport` for each weight, and which prints as a table.

    Raises:
        TypeError: if `model` is not a module.
        ValueError: if the model has no orthogonal weight, or one is on the meta device.

    Examples:
        >>> import torch, orthonorm as on
        >>> report = on.inspect(torch.nn.Sequential(on.OrthogonalLinear(8, 4, scale=2.0)))
        >>> report.layers[0].groups, report.layers[0].scale, round(report.layers[0].w_norm, 5)
        ((4,), (2.0, 2.0), 2.0)

    Source: the quantities of equation (3) of the paper.
    """
    if isinstance(model, str | PathLike):
        raise TypeError(
            f"model must be a torch.nn.Module; got {type(model).__name__}. For a file call orthonorm.inspect_file."
        )
    return Inspection(tuple(report_weight(key, owner, V) for key, owner, V in _weights(model)), _behind(model))


def _weights(model: nn.Module) -> list[tuple[str, OrthogonalWeightNorm, Tensor]]:
    found = [
        (key, owner, unconstrained(module, name).detach()) for key, module, name, owner in orthogonal_weights(model)
    ]
    if not found:
        raise ValueError(f"this {type(model).__name__} has no orthogonal weight. Call orthogonalize_ first.")
    for key, _, V in found:
        refuse_meta(V, key, "it is inspected")
    return found


def _behind(model: nn.Module) -> str:
    """Return a line for each weight that another parametrization, registered behind the library's, changes further."""
    lines = []
    for key, module, name, _ in orthogonal_weights(model):
        _, *others = module.parametrizations[name]  # type: ignore[index]
        if others:
            kinds = ", ".join(type(other).__name__ for other in others)
            lines.append(f"{key}: the row is of the weight before {kinds}, which the layer applies to it")
    return "\n".join(lines)


def _error(owner: OrthogonalWeightNorm, rows: Float[Tensor, "groups n d"]) -> float:
    return float(orthogonality_errors(rows, owner.sizes).amax()) if rows.numel() else 0.0


def report_weight(key: str, owner: OrthogonalWeightNorm, V: Tensor) -> LayerReport:
    """Return the report of the weight that `owner` makes of `V`."""
    with torch.no_grad():
        unit = owner.orthonormal_rows(V)
        W = owner.matrices(owner.weight_of(unit, V))
        rows = in_float64(owner.rows(V))
    centred = rows - rows.mean(-1, keepdim=True) if owner.center else rows
    numbers = [condition_number(matrix) for part in centred for matrix in part.split(owner.sizes)]
    return LayerReport(
        weight=key,
        shape=tuple(V.shape),
        groups=owner.sizes * len(rows),
        columns=owner.columns > 0,
        error=_error(owner, unit),
        condition_number=_largest([1.0, *numbers]),
        v_norm=float(frobenius_norm(rows)) / math.sqrt(rows.shape[:-1].numel()) if rows.numel() else 0.0,
        w_norm=_largest([0.0, *map(largest_singular_value, in_float64(W))]),
        scale=_scale_range(owner.factor()),
    )


def _largest(numbers: list[float]) -> float:
    """Return the largest of the numbers, NaN where there is one (in max() it may lose)."""
    return float(torch.tensor(numbers, dtype=torch.float64, device="cpu").amax())


def _scale_range(scale: Tensor | float | None) -> tuple[float, float] | None:
    if isinstance(scale, Tensor) and scale.numel():
        low, high = scale.detach().aminmax()
        return float(low), float(high)
    return None if scale is None or isinstance(scale, Tensor) else (float(scale), float(scale))


def _cells(layer: LayerReport) -> tuple[str, ...]:
    """Return what the table shows of a weight."""
    numbers = (layer.error, layer.condition_number, layer.v_norm)
    part, line = ("block", "column") if layer.columns else ("group", "row")
    low, high = layer.scale or (0.0, 0.0)
    scale = f"{low:.3g}" if low == high else f"{low:.3g} to {high:.3g}"
    return (
        layer.weight,
        " x ".join(map(str, layer.shape)),
        sizes_in_words(layer.groups, part, line),
        *(f"{number:.2g}" for number in numbers),
        f"{layer.w_norm:.3g}",
        "none" if layer.scale is None else scale,
    )
