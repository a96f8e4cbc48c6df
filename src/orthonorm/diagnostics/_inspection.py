"""What a model's orthogonal weights are like: their error, the condition and size of V, the scale."""

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from orthonorm.functional._orthogonality import orthogonality_errors
from orthonorm.functional._precision import in_float64, row_norms
from orthonorm.functional.stiefel._layout import matrix_layout
from orthonorm.parametrizations._registration import free_matrix, orthogonal_weights
from orthonorm.parametrizations._weight_norm import OrthogonalWeightNorm

__all__ = ["Inspection", "LayerReport", "inspect", "orthogonality_error", "report_weight"]


def orthogonality_error(model: nn.Module | torch.optim.Optimizer) -> dict[str, float]:
    r"""Return how far each orthogonal weight is from orthonormal rows.

    $$\max_{\text{groups}} \max_{ij} |W W^T - I|_{ij}, \quad \text{before the scale } g$$

    It is measured on what the library's parametrization makes of V, in the type of the weight. Another parametrization
    registered behind it, as a mask, acts on the result and is not looked at; `inspect` names it below its table. A lost
    direction of V shows as 1 for a zero row, 1/2 for two equal rows, at least 1/n in a group of n; NaN says that V is
    not finite.

    Args:
        model: a module with orthogonal weights, or an optimizer with weights on the Stiefel manifold.

    Returns:
        The error by the weight's key in the plain model's `state_dict`, in the order of the model; for an optimizer by
        the parameter's name where it was given names, and `"group.position"` where not.

    Raises:
        TypeError: if `model` is neither.
        ValueError: if it has no orthogonal weight, or one is on the meta device.

    Example:
        >>> import torch, orthonorm as on
        >>> errors = on.orthogonality_error(torch.nn.Sequential(on.OrthogonalLinear(8, 4)))
        >>> list(errors), errors["0.weight"] < 1e-6
        (['0.weight'], True)

    Source: the constraint W W^T = I of equation (1) of the paper.
    """
    if isinstance(model, torch.optim.Optimizer):
        return _errors_on_manifold(model)
    return {key: _error(owner, V) for key, owner, V in _weights(model)}


def _errors_on_manifold(optimizer: torch.optim.Optimizer) -> dict[str, float]:
    errors = {}
    for i, group in enumerate(optimizer.param_groups):
        names = group.get("param_names", [f"{i}.{j}" for j in range(len(group["params"]))])
        for name, weight in zip(names, group["params"] if group.get("manifold") else [], strict=False):
            blocks = matrix_layout(tuple(weight.shape), group["group_size"]).blocks(weight)
            errors[name] = _largest([0.0, *(float(orthogonality_errors(block).amax()) for block in blocks)])
    if not errors:
        raise ValueError(f"this {type(optimizer).__name__} has no weight on the manifold (a group with manifold=True).")
    return errors


@dataclass(frozen=True)
class LayerReport:
    """One orthogonal weight: what it is and how it fares."""

    weight: str
    """Key in the plain model's `state_dict`."""
    shape: tuple[int, ...]
    groups: str
    """The groups in words."""
    limit: int
    """Most rows that a group may hold."""
    error: float
    """Largest |W W^T - I| over the groups, before the scale and any parametrization behind the library's."""
    condition: float
    """Largest condition number of V over the groups, after centring; above 2e6 W has lost a direction."""
    norm: float
    """Root mean square of the norms of V's rows: the effective rate is lr / norm^2."""
    scale: str
    """The scale: none, a number, or the range of the learned ones."""


@dataclass(frozen=True)
class Inspection:
    """The reports of a model's orthogonal weights; prints as a table."""

    layers: tuple[LayerReport, ...]
    note: str = ""
    """What was assumed, where a file does not say it; which weights another parametrization changes further."""

    def __str__(self) -> str:
        """Return the table, one row a weight, and the note below it."""
        names = [field.name for field in fields(LayerReport)]
        table = [names] + [[_text(getattr(layer, name)) for name in names] for layer in self.layers]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        below = [self.note] if self.note else []
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:], *below])


def inspect(model: nn.Module) -> Inspection:
    """Return one row for each orthogonal weight of a model: groups, limit, error, condition and norm of V, scale.

    `norm` is the root mean square of the norms of V's rows, and the effective rate of a layer is `lr / norm**2`: where
    it differs widely between layers, `renormalize_` sets it. `condition` is that of the centred V, the worst group's.

    Args:
        model: a module with orthogonal weights.

    Returns:
        The reports, which print as a table.

    Raises:
        TypeError: if `model` is not a module.
        ValueError: if the model has no orthogonal weight, or one is on the meta device.

    Example:
        >>> import torch, orthonorm as on
        >>> report = on.inspect(torch.nn.Sequential(on.OrthogonalLinear(8, 4, scale=2.0)))
        >>> report.layers[0].groups, report.layers[0].limit, report.layers[0].scale
        ('1 group of 4 rows', 8, '2')

    Source: the quantities of equation (3) of the paper.
    """
    return Inspection(tuple(report_weight(key, owner, V) for key, owner, V in _weights(model)), _behind(model))


def _weights(model: nn.Module) -> list[tuple[str, OrthogonalWeightNorm, Tensor]]:
    found = [(key, owner, free_matrix(module, name).detach()) for key, module, name, owner in orthogonal_weights(model)]
    if not found:
        raise ValueError(f"this {type(model).__name__} has no orthogonal weight. Call orthogonalize_ first.")
    for key, _, V in found:
        if V.is_meta:
            raise ValueError(
                f"{key} is on the meta device, which holds no values. Call to_empty(device=...) on the model and load "
                "its weights first."
            )
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


def _error(owner: OrthogonalWeightNorm, V: Tensor) -> float:
    if V.numel() == 0:
        return 0.0
    with torch.no_grad():
        return float(orthogonality_errors(owner.orthonormal_rows(V), owner.sizes).amax())


def report_weight(key: str, owner: OrthogonalWeightNorm, V: Tensor) -> LayerReport:
    """Return the report of the weight that `owner` makes of `V`."""
    rows = in_float64(owner.rows(V))
    centred = rows - rows.mean(-1, keepdim=True) if owner.center else rows
    conditions = [_condition(matrix) for part in centred for matrix in part.split(owner.sizes)]
    return LayerReport(
        weight=key,
        shape=tuple(V.shape),
        groups=owner.describe_groups(),
        limit=owner.limit,
        error=_error(owner, V),
        condition=_largest([1.0, *conditions]),
        norm=_root_mean_square(row_norms(rows)) if V.numel() else 0.0,
        scale=_scale_text(owner.factor()),
    )


def _root_mean_square(norms: Tensor) -> float:
    return float(row_norms(norms.reshape(1, -1))) / math.sqrt(norms.numel())


def _largest(numbers: list[float]) -> float:
    """Return the largest of the numbers, NaN where there is one (in max() it may lose)."""
    return float(torch.tensor(numbers, dtype=torch.float64, device="cpu").amax())


def _condition(matrix: Tensor) -> float:
    """Return the ratio of the extreme singular values; NaN for a matrix that is not finite."""
    if not bool(torch.isfinite(matrix).all()):
        return float("nan")
    values = torch.linalg.svdvals(matrix)
    return float(values[0] / values[-1]) if values[-1] > 0 else float("inf")


def _scale_text(scale: Tensor | float | None) -> str:
    if isinstance(scale, Tensor) and scale.numel():
        low, high = scale.detach().aminmax()
        return f"{float(low):.3g} to {float(high):.3g}"
    return "none" if scale is None or isinstance(scale, Tensor) else f"{scale:g}"


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    return f"{value:.2g}" if isinstance(value, float) else str(value)
