"""The transformation from V to the orthogonal weight, as a module that holds the scale."""

import math
import warnings
from collections.abc import Hashable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from orthonorm.functional._completion import complete_rank
from orthonorm.functional._groups import row_limit
from orthonorm.functional._option_types import MethodName, Precision
from orthonorm.functional._orthonormalize import orthonormalize_groups
from orthonorm.functional._precision import check_precision, frobenius_norm, in_float64
from orthonorm.functional._rows import as_rows, from_rows

from ._arguments import check_stack, check_weight, refuse_sharded
from ._initial_scale import initial_scale
from ._options import Options, split_rows
from ._saved_options import (
    check_saved_options,
    groups_in_words,
    note_options,
    options_in_words,
)
from .caching._cache import look_up
from .caching._repeated_reads import RepeatedReads

__all__ = ["OrthogonalWeightNorm"]


class OrthogonalWeightNorm(nn.Module):
    r"""The transformation from the unconstrained parameter V to the orthogonal weight, as a parametrization.

    $$W = g \odot \Sigma^{-1/2} V, \qquad \Sigma = V V^T \text{ in each group of rows}$$

    With `center=True`, $V$ less the mean of each row stands for $V$. The module holds no buffer and no cached tensor:
    V, which `torch.nn.utils.parametrize` keeps as `original`, and the scale g are all the state. Use
    `orthogonal_weight_norm`, which builds and registers it.

    Args:
        weight: the tensor to be normalized, which says shape, dtype and device: `(out, in/groups, *kernel)`. A scale of
            `"row_norms"` starts at the norms of its rows.
        options: what `orthogonal_weight_norm` takes; None for its defaults.
        groups, transposed: the layout of a convolution's weight.
        stacked: whether the weight is a stack `(E, n, d)` of matrices; then `transposed` says that it is `(E, d, n)`.
        constant_row: a row that is left as it is and gets no gradient (an embedding's padding); None for none.
        label: how messages name the weight.

    Raises:
        TypeError, ValueError: as `orthogonal_weight_norm`.

    Examples:
        >>> import torch, orthonorm as on
        >>> on.OrthogonalWeightNorm(torch.empty(64, 64), on.OrthogonalConfig(group_size=32))
        OrthogonalWeightNorm(2 groups of 32 rows, orthonormal within a group; limit 64, not centred, scale=None)

    Source: equation (3) of the paper; Mathematics (2).
    """

    mapped_together = True
    """Whether `cached` may compute its rows with those of other weights, by `functional` alone."""

    def __init__(
        self,
        weight: Tensor,
        options: Options | None = None,
        *,
        groups: int = 1,
        transposed: bool = False,
        stacked: bool = False,
        constant_row: int | None = None,
        label: str = "the weight",
    ) -> None:
        super().__init__()
        options = Options() if options is None else options
        check_weight(weight, label)
        check_stack(weight, stacked, label)
        check_precision(options.precision, weight.device)
        self.options: Options = options
        self.shape: tuple[int, ...] = tuple(weight.shape)
        self.label: str = label
        self.reads: RepeatedReads = RepeatedReads()
        self.groups: int = len(weight) if stacked else groups
        self.stacked: bool = stacked
        self.transposed: bool = transposed
        self.constant_row: int | None = constant_row
        self.center: bool = options.center
        self.method: MethodName = options.method
        self.precision: Precision = options.precision
        self.followers: tuple[str, ...] = ()  # the module's parameters after this one, so that folding keeps the order
        _, n, d = self._matrices(weight.detach()).shape
        try:
            columns, sizes = split_rows(n, d, options, groups)
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from None
        self.columns: int = columns  # of equal blocks whose columns are orthonormal; 0 for rows
        self.sizes: tuple[int, ...] = sizes
        self.limit: int = row_limit(n // self.columns if self.columns else d, options.center)
        if options.center and d == 2:
            warnings.warn(
                f"{label} has rows of 2 entries, which centring leaves no freedom: each becomes +-(0.707, -0.707) and "
                "the layer learns nothing. Use center=False, or leave this weight as it is.",
                stacklevel=3,
            )
        self.scale: nn.Parameter | float | None
        if isinstance(options.scale, str):
            trains = weight.requires_grad or not isinstance(weight, nn.Parameter)  # a frozen layer stays frozen
            self.scale = nn.Parameter(initial_scale(self, weight), trains)
        else:
            self.scale = None if options.scale is None else float(options.scale)

    def forward(self, V: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the weight, orthonormal rows times the scale, of the shape and dtype of `V`."""
        if torch.compiler.is_compiling():
            return self._weight(V)
        return look_up(self, V, lambda: self._weight(V))

    def sources(self, V: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors that the weight is computed from."""
        return (V, self.scale) if isinstance(self.scale, Tensor) else (V,)

    def _weight(self, V: Tensor) -> Tensor:
        return self.weight_of(self.orthonormal_rows(V), V)

    def weight_of(self, rows: Float[Tensor, "groups n d"], V: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the weight, of the shape of `V`, whose orthonormal rows are the given ones."""
        scale = self.factor()
        if isinstance(scale, Tensor):
            matrices, k, m = rows.shape
            rows = rows * (scale.view(matrices, 1, m) if self.columns else scale.view(matrices, k, 1))
        elif scale is not None:
            rows = rows * scale
        return self.assemble(rows, V)

    def factor(self) -> Tensor | float | None:
        """Return the scale g that the rows of the weight are multiplied by; None for none."""
        return self.scale

    def key(self) -> Hashable:
        """Return what decides the weight besides V and the values of a learned scale."""
        return (
            self.rows_key(),
            self.method,
            self.precision,
            self.scale if not isinstance(self.scale, Tensor) else "learned",
        )

    def rows_key(self) -> Hashable:
        """Return what decides the orthonormal rows besides V, but for how they are computed."""
        layout = self.groups, self.transposed, self.stacked, self.constant_row
        return self.sizes, self.columns, self.center, *layout

    def rows(self, V: Float[Tensor, "..."]) -> Float[Tensor, "groups n d"]:
        """Return the rows of `V` that are to be orthonormal, one matrix for each group of a convolution, or of a stack.

        Where columns are to be orthonormal they are the rows here, one matrix for each block.

        Raises:
            TypeError: if `V` is sharded among ranks, so that this process has only some of its rows.
        """
        refuse_sharded(V, self.label)
        rows = self._matrices(V)
        return rows.unflatten(1, (self.columns, -1)).flatten(0, 1).mT if self.columns else rows

    def _matrices(self, V: Float[Tensor, "..."]) -> Float[Tensor, "groups n d"]:
        """Return `V` as its matrices, without the constant row."""
        rows = self.matrices(V)
        if self.constant_row is None:
            return rows
        return torch.cat([rows[:, : self.constant_row], rows[:, self.constant_row + 1 :]], dim=1)

    def matrices(self, weight: Float[Tensor, "..."]) -> Float[Tensor, "groups n d"]:
        """Return a tensor of the weight's shape as one matrix for each group of a convolution, or each of a stack."""
        return as_rows(weight, groups=self.groups, transposed=self.transposed, stacked=self.stacked)

    def assemble(self, rows: Float[Tensor, "groups n d"], V: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the tensor of the shape of `V` whose `rows` are the given ones; a constant row comes from `V`."""
        if self.columns:
            rows = rows.mT.reshape(self.groups, -1, rows.shape[-2])
        if self.constant_row is not None:
            i = self.constant_row
            rows = torch.cat([rows[:, :i], V.detach()[None, i : i + 1], rows[:, i:]], dim=1)
        return from_rows(rows, V.shape, transposed=self.transposed, stacked=self.stacked)

    def orthonormal_rows(self, V: Float[Tensor, "..."]) -> Float[Tensor, "groups n d"]:
        """Return the orthonormal rows before the scale, one matrix for each of a convolution's groups."""
        return orthonormalize_groups(
            self.rows(V), self.sizes, center=self.center, method=self.method, precision=self.precision
        )

    def right_inverse(self, weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the V that stands for `weight`; nothing else is changed.

        It is `initial_V`; on the meta device, which holds no values, `weight` itself.

        Raises:
            TypeError: if `weight` is not a tensor of floating numbers, or is sharded among ranks.
            ValueError: if it has another shape.
        """
        if not isinstance(weight, Tensor):
            raise TypeError(f"{self.label} must be a tensor of the shape {self.shape}; got {type(weight).__name__}.")
        if tuple(weight.shape) != self.shape:
            raise ValueError(
                f"{self.label} has the shape {self.shape}; got a tensor of shape {tuple(weight.shape)} for it. "
                "Assign one of the same shape, or build another layer."
            )
        check_weight(weight, self.label)
        # torch lets V share the memory of what is returned here: right for the module's own parameter when the
        # parametrization is registered, but a tensor assigned later (`layer.weight = X`) belongs to the caller.
        own = weight if isinstance(weight, nn.Parameter) else weight.clone()
        return own if weight.is_meta else self.initial_V(own)

    def initial_V(self, weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        r"""Return the V that a weight X starts as, with a warning where X has lost directions.

        $$V = c W, \qquad c = |X|_F / |W|_F$$

        W are the orthonormal rows of X: the same function, of condition number 1, and steps of the relative size of the
        plain layer's. With `initial="weight"` it is X. Directions that X has lost (zero or dependent rows) are
        completed by fixed ones, and an X that is not finite is kept, both with a warning.

        Raises:
            TypeError: if `weight` is sharded among ranks.
        """
        full = self.complete(weight)
        if self.options.initial == "weight" or not self.rows(weight).numel() or not bool(torch.isfinite(weight).all()):
            return full
        with torch.no_grad():
            # In float64, so that V is rounded once: its condition number is then 1 to the last digit.
            wide = in_float64(full)
            W = self.orthonormal_rows(wide)
            c = float(frobenius_norm(self.rows(weight))) / float(frobenius_norm(W))
            # Within the numbers of the dtype, also where those of X are at its ends.
            info = torch.finfo(weight.dtype)
            c = min(max(c or 1.0, info.tiny * math.sqrt(W.shape[-1])), info.max / 2)
            return torch.empty_like(weight).copy_(self.assemble(c * W, wide))

    def complete(self, weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return `weight` with the directions that it has lost filled by fixed ones, with a warning that says so."""
        rows = self.rows(weight.detach())
        if not bool(torch.isfinite(rows).all()):
            warnings.warn(
                f"{self.label} has entries that are not finite; every group of rows with one computes with NaN. "
                "Initialize it again (reset_parameters), or load a checkpoint without them.",
                stacklevel=2,
            )
        full, lost = self.completed(weight)
        if lost == 0:
            return weight
        warnings.warn(
            f"{self.label} has lost {lost} of its {rows.shape[0] * rows.shape[1]} directions (zero or dependent "
            "rows); they are completed by fixed orthonormal rows. Leave a layer that must start from zero out of "
            "the conversion.",
            stacklevel=2,
        )
        return full

    def completed(self, weight: Float[Tensor, "..."]) -> tuple[Float[Tensor, "..."], int]:
        """Return `weight` with the directions that it has lost filled by fixed ones, and how many these are."""
        rows = self.rows(weight.detach())
        if rows.numel() == 0:
            return weight, 0
        parts = [complete_rank(V, center=self.center) for matrix in rows for V in matrix.split(self.sizes)]
        full = torch.cat([V for V, _ in parts]).view(rows.shape)
        return self.assemble(full, weight), sum(count for _, count in parts)

    def describe_groups(self) -> str:
        """Return the groups in words: "2 groups of 32 rows", "64 orthonormal columns"."""
        return groups_in_words(self.sizes, self.columns, self.groups, self.stacked)

    def _options_in_words(self) -> str:
        return options_in_words(self.sizes, self.columns, self.groups, self.center)

    def _rows_to_note(self) -> dict[str, Any]:
        """Return what decides the weight besides the tensors, as attributes of this module by their names."""
        fixed = self.scale if isinstance(self.scale, float) else None
        names = ("sizes", "columns", "center", "groups", "transposed", "stacked", "constant_row")
        return {name: getattr(self, name) for name in names} | {"scale": fixed}

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        note_options(destination, prefix, self._options_in_words(), self._rows_to_note())

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any, **named: Any
    ) -> None:
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest, **named)
        key = prefix.replace("parametrizations.", "").removesuffix(".0.")
        check_saved_options(local_metadata, self._options_in_words(), key, errors=[*rest, *named.values()][-1])

    def extra_repr(self) -> str:
        """Return what the printed module shows: groups, limit, centring, scale."""
        rule = self.describe_groups()
        if not self.columns:
            rule += f", orthonormal within a group; limit {self.limit}, {'' if self.center else 'not '}centred"
        scale = self.options.scale if isinstance(self.scale, Tensor) else self.scale
        return f"{rule}, scale={scale}"
