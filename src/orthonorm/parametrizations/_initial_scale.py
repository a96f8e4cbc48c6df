"""What a learned scale starts as."""

from typing import Any

import torch
from torch import Tensor

from orthonorm.functional._precision import row_norms

__all__ = ["initial_scale"]


def initial_scale(owner: Any, weight: Tensor) -> Tensor:
    """Return the learned scale that a weight starts with: ones, or what gives its rows the norms that they have.

    Args:
        owner: the parametrization.
        weight: the plain weight.
    """
    rows = owner.rows(weight.detach())
    rows = rows.mT if owner.columns else rows
    if owner.options.scale != "row_norms":
        return rows.new_ones(rows[..., 0].numel())
    norms = row_norms(rows)
    if owner.columns:
        # Where columns are orthonormal, a row is shorter than 1.
        unit = row_norms(owner.orthonormal_rows(weight.detach()).mT)
        norms = torch.where(unit > 0, norms / unit, norms)
    return norms.flatten()
