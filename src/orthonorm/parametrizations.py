"""Orthogonal weight normalization as a parametrization of a module's tensor."""

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils import parametrize

from .functional.completion import complete_rank
from .functional.grouping import check_group_arguments, group_sizes, row_limit
from .functional.orthonormalize import orthonormalize_groups
from .functional.roots import choose_method
from .functional.rows import as_rows, from_rows

__all__ = [
    "OrthogonalWeightNorm",
    "build",
    "free_matrix",
    "load_plain_weight",
    "orthogonal_weight_norm",
    "orthogonal_weights",
    "register",
    "row_layout",
]


def row_layout(module: nn.Module) -> tuple[int, bool]:
    """Return `(groups, transposed)`, which say how the module's weight is brought to rows (`functional.rows`)."""
    if isinstance(module, nn.modules.conv._ConvNd):
        return module.groups, module.transposed
    return 1, False


class OrthogonalWeightNorm(nn.Module):
    r"""The map from the free matrix V to the orthogonal weight, as a parametrization.

    $$W = g \odot \Sigma^{-1/2} (V - \bar V), \qquad \Sigma = (V - \bar V)(V - \bar V)^T \text{ in each group of rows}$$

    It holds no buffer and no cached tensor: V, which `torch.nn.utils.parametrize` keeps as `original`, and the scale g
    are all the state. Use `orthogonal_weight_norm`, which builds and registers it.

    Args:
        weight: the tensor to be normalized, which tells shape, type and device: `(out, in/groups, *kernel)`.
        group_size, center, grouping, scale, blocks, method: as in `orthogonal_weight_norm`.
        groups, transposed: the layout of a convolution's weight.
        label: how messages name the weight.

    Raises:
        TypeError, ValueError: as `orthogonal_weight_norm`.

    Example:
        >>> import torch, orthonorm as on
        >>> on.OrthogonalWeightNorm(torch.empty(64, 64), group_size=32)
        OrthogonalWeightNorm(2 groups of 32 rows, orthonormal within a group; limit 63, centred, scale=False)

    Source: equation (3) of the paper.
    """

    def __init__(
        self,
        weight: Tensor,
        *,
        group_size: int | None = None,
        center: bool = True,
        grouping: str = "balanced",
        scale: bool | float = False,
        blocks: int | Sequence[int] | None = None,
        method: str = "auto",
        groups: int = 1,
        transposed: bool = False,
        label: str = "the weight",
    ) -> None:
        super().__init__()
        _check_weight(weight, label)
        choose_method(method, weight.device)
        _, n, d = as_rows(weight.detach(), groups=groups, transposed=transposed).shape
        self.center, self.method, self.label = center, method, label
        self.unit_start = False  # whether `reset_parameters` starts a learned scale at 1, not at the row norms
        self.groups, self.transposed = groups, transposed
        self.limit = row_limit(d, center)
        try:
            self.sizes = tuple(
                size
                for block in _block_sizes(n, blocks, groups)
                for size in group_sizes(block, d, group_size=group_size, center=center, grouping=grouping)
            )
        except ValueError as error:
            raise ValueError(f"{label}: {error}") from None
        if center and d == 2:
            warnings.warn(
                f"{label} has rows of 2 entries, which centring leaves no freedom: each becomes +-(0.707, -0.707) and "
                "the layer learns nothing. Use center=False, or leave this weight as it is.",
                stacklevel=3,
            )
        self.scale = _make_scale(scale, groups * n, weight)

    def forward(self, V: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the weight, orthonormal rows times the scale, of the shape and type of `V`."""
        rows = self.orthonormal_rows(V)
        if isinstance(self.scale, Tensor):
            rows = rows * self.scale.view(*rows.shape[:-1], 1)
        elif self.scale is not False:
            rows = rows * self.scale
        return from_rows(rows, V.shape, transposed=self.transposed)

    def orthonormal_rows(self, V: Float[Tensor, "..."]) -> Float[Tensor, "groups n d"]:
        """Return the orthonormal rows before the scale, one matrix for each of a convolution's groups."""
        rows = as_rows(V, groups=self.groups, transposed=self.transposed)
        return orthonormalize_groups(rows, self.sizes, center=self.center, method=self.method)

    def right_inverse(self, weight: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """Return the V that stands for `weight`: itself, so the layer becomes the orthonormal matrix nearest to it.

        A learnable scale takes the norms of the rows. Directions that `weight` has lost (zero or dependent rows) are
        completed by fixed ones, with a warning.
        """
        rows = as_rows(weight.detach(), groups=self.groups, transposed=self.transposed)
        if isinstance(self.scale, Tensor):
            with torch.no_grad():
                self.scale.copy_(rows.norm(dim=-1).flatten())
        if weight.is_meta:
            return weight
        parts = [complete_rank(V, center=self.center) for matrix in rows for V in matrix.split(self.sizes)]
        lost = sum(count for _, count in parts)
        if lost == 0:
            return weight
        warnings.warn(
            f"{self.label} has lost {lost} of its {rows.shape[0] * rows.shape[1]} directions (zero or dependent rows); "
            "they start from fixed orthonormal rows. Scale the layer's output, or leave it out of the conversion, "
            "where it has to start from zero.",
            stacklevel=2,
        )
        completed = torch.cat([V for V, _ in parts]).view(rows.shape)
        return from_rows(completed, weight.shape, transposed=self.transposed)

    def describe_groups(self) -> str:
        """Return the groups in words: "2 groups of 32 rows"."""
        counts = Counter(self.sizes)
        text = " and ".join(
            f"{count} group{'s' * (count > 1)} of {size} row{'s' * (size > 1)}" for size, count in counts.items()
        )
        return text if self.groups == 1 else f"{text} in each of {self.groups} convolution groups"

    def extra_repr(self) -> str:
        """Return what the printed module shows: groups, limit, centring, scale."""
        centred = "centred" if self.center else "not centred"
        scale = "learnable" if isinstance(self.scale, Tensor) else self.scale
        return f"{self.describe_groups()}, orthonormal within a group; limit {self.limit}, {centred}, scale={scale}"


def _check_weight(weight: Tensor, label: str) -> None:
    if isinstance(weight, nn.parameter.UninitializedParameter):
        raise ValueError(f"{label} has no shape yet (a lazy module). Run one batch through the module first.")
    if weight.is_complex():
        raise TypeError(
            f"{label} is complex ({weight.dtype}), but the map is defined for real weights. Keep real and imaginary "
            "parts as two real weights, or leave this module as it is."
        )
    if not weight.is_floating_point():
        raise TypeError(f"{label} must be a floating tensor; got {weight.dtype}. Convert it with .float().")
    if weight.ndim < 2:
        raise ValueError(
            f"{label} must have at least 2 dimensions, rows and their entries; got the shape {tuple(weight.shape)}. "
            "Biases and normalization weights stay as they are."
        )


def _block_sizes(n: int, blocks: int | Sequence[int] | None, groups: int) -> tuple[int, ...]:
    if blocks is None:
        return (n,)
    if groups > 1:
        raise ValueError(
            f"blocks cannot be combined with a convolution of {groups} groups, which are blocks already; got "
            f"blocks={blocks!r}. Leave blocks out."
        )
    if isinstance(blocks, int):  # the number of equal blocks
        if blocks < 1 or n % blocks:
            raise ValueError(
                f"blocks, as a number, must divide the {n} rows; got {blocks}. Give the sizes of unequal blocks."
            )
        return (n // blocks,) * blocks
    if min(blocks, default=0) < 1 or sum(blocks) != n:
        raise ValueError(f"the sizes of blocks must be positive and sum to the {n} rows; got {tuple(blocks)}.")
    return tuple(blocks)


def _make_scale(scale: bool | float, rows: int, weight: Tensor) -> nn.Parameter | float | bool:
    if scale is True:
        return nn.Parameter(torch.ones(rows, dtype=weight.dtype, device=weight.device))
    if scale is False:
        return False
    if not isinstance(scale, int | float) or not 0 < scale < float("inf"):
        raise ValueError(f"scale must be False, True (learned, one a row) or a positive number; got {scale!r}.")
    return float(scale)


def orthogonal_weight_norm(
    module: nn.Module,
    name: str = "weight",
    *,
    group_size: int | None = None,
    center: bool = True,
    grouping: str = "balanced",
    scale: bool | float = False,
    blocks: int | Sequence[int] | None = None,
    method: str = "auto",
) -> nn.Module:
    r"""Make a tensor of a module orthogonal, and keep it so while it trains.

    $$W = g \odot \Sigma^{-1/2} (V - \bar V), \qquad W W^T = I \text{ in each group of rows, before the scale } g$$

    The parameter stays the same object, now as the free matrix V, so an optimizer that holds it goes on with it; the
    layer starts as the orthonormal matrix nearest to the weight that was there. Rows are output filters: a convolution
    is its kernel flattened to `(out, in/groups * k * k)`, each of its own groups by itself, and a transposed
    convolution is brought to that form first. It is the kernel that is orthogonal, not the convolution as an operator.

    Args:
        module: the module that owns the tensor.
        name: the tensor's name.
        group_size: rows a group, at most `d - 1` with centring and `d` without; None for that limit.
        center: subtract each row's mean first, as the paper does.
        grouping: `"balanced"` (groups as even as possible) or `"tail"` (full groups and a smaller last one).
        scale: False; True for a learned factor a row that starts at the norms of the rows; or a fixed number.
        blocks: number of equal blocks of rows, or their sizes, that groups must not straddle (gates, projections).
        method: how Sigma^{-1/2} is computed: `"eigh"`, `"newton"`, or `"auto"`.

    Returns:
        The module.

    Raises:
        TypeError: if `module` is not a module, or the tensor is complex or not floating.
        ValueError: if there is no such parameter, it is parametrized already, or the groups cannot be orthonormal.

    Example:
        >>> import torch, orthonorm as on
        >>> layer = on.orthogonal_weight_norm(torch.nn.Linear(64, 32))
        >>> torch.dist(layer.weight @ layer.weight.T, torch.eye(32)) < 1e-5
        tensor(True)

    Source: equation (3) and the group based orthogonalization of the paper.
    """
    parametrization = build(
        module,
        name,
        label=f"{name} of {type(module).__name__}",
        group_size=group_size,
        center=center,
        grouping=grouping,
        scale=scale,
        blocks=blocks,
        method=method,
    )
    return register(module, name, parametrization)


def build(module: nn.Module, name: str, *, label: str, **options: Any) -> OrthogonalWeightNorm:
    """Return the parametrization for a module's tensor, all checks done and nothing changed yet."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module; got {type(module).__name__}.")
    if parametrize.is_parametrized(module, name):
        kind = type(module.parametrizations[name][0]).__name__  # type: ignore[index]
        cure = "Fold it first (orthonorm.fold_)" if kind == "OrthogonalWeightNorm" else "Remove that one first"
        raise ValueError(f"{label} is parametrized already, by {kind}. {cure}, or leave it as it is.")
    weight = module._parameters.get(name)
    if weight is None:
        known = ", ".join(module._parameters) or "none"
        raise ValueError(f"{type(module).__name__} has no parameter {name!r}; its parameters are: {known}.")
    check_group_arguments(options.get("group_size"), options.get("grouping", "balanced"))
    groups, transposed = row_layout(module) if name == "weight" else (1, False)
    return OrthogonalWeightNorm(weight, groups=groups, transposed=transposed, label=label, **options)


def register(module: nn.Module, name: str, parametrization: OrthogonalWeightNorm) -> nn.Module:
    """Register a parametrization that `build` made, with what makes checkpoints and re-initialisation work."""
    first = not parametrize.is_parametrized(module)
    parametrize.register_parametrization(module, name, parametrization)
    if first:
        module.register_load_state_dict_pre_hook(load_plain_weight)
        if callable(getattr(module, "reset_parameters", None)):
            type(module).reset_parameters = _reset_parameters  # type: ignore[attr-defined]
    return module


def orthogonal_weights(model: nn.Module) -> Iterator[tuple[str, nn.Module, str, OrthogonalWeightNorm]]:
    """Yield `(plain key, module, tensor name, parametrization)` of every orthogonal weight of a model."""
    for fqn, module in model.named_modules():
        for name, parametrizations in getattr(module, "parametrizations", {}).items():
            if isinstance(parametrizations[0], OrthogonalWeightNorm):
                yield f"{fqn}.{name}" if fqn else name, module, name, parametrizations[0]


def free_matrix(module: nn.Module, name: str) -> nn.Parameter:
    """Return V of a module's orthogonal weight."""
    return getattr(module.parametrizations, name).original


def load_plain_weight(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Let a checkpoint of the plain model load: its weight becomes V, and its row norms a learnable scale."""
    for name, parametrizations in getattr(module, "parametrizations", {}).items():
        weight = state_dict.get(prefix + name)
        original = f"{prefix}parametrizations.{name}.original"
        owner = parametrizations[0]
        if not isinstance(owner, OrthogonalWeightNorm) or original in state_dict or weight is None:
            continue
        del state_dict[prefix + name]
        state_dict[original] = weight
        if isinstance(owner.scale, Tensor):
            rows = as_rows(weight, groups=owner.groups, transposed=owner.transposed)
            state_dict[f"{prefix}parametrizations.{name}.0.scale"] = rows.norm(dim=-1).flatten()


def _reset_parameters(module: nn.Module) -> None:
    """Run the class's own `reset_parameters` and make what it wrote into the weight the new V."""
    with torch.no_grad(), parametrize.cached():
        # Inside `cached` the weight is one tensor, so an in-place initialisation of it can be seen afterwards.
        names = list(module.parametrizations)  # type: ignore[arg-type]
        weights = {name: getattr(module, name) for name in names}
        before = {name: weight._version for name, weight in weights.items()}
        type(module).__mro__[1].reset_parameters(module)  # type: ignore[attr-defined]
        written = {name: weight.clone() for name, weight in weights.items() if weight._version != before[name]}
    for name, weight in written.items():
        setattr(module, name, weight)
        owner = module.parametrizations[name][0]  # type: ignore[index]
        if isinstance(owner, OrthogonalWeightNorm) and owner.unit_start and isinstance(owner.scale, Tensor):
            nn.init.ones_(owner.scale)
