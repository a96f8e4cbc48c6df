"""How the parametrization is put on a module: checks first, then checkpoints and re-initialisation go on working."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn.utils import parametrize

from orthonorm._nearest_name import nearest_name
from orthonorm.functional._option_types import Grouping, MethodName, Precision, Tall

from ._arguments import check_table, refuse_rewritten, refuse_unsaid_stack
from ._assignment import adapt_assignment
from ._initial_scale import initial_scale
from ._options import Blocks, Initial, Options, Scale
from ._orthogonal_weights import orthogonal_weights, unconstrained
from ._recurrent_and_attention import adapt, read_once
from ._reset_parameters import adapt_resets
from ._rollback import all_or_nothing
from ._row_layout import padding_row, row_layout
from ._weight_norm import OrthogonalWeightNorm
from ._without_values import await_values

__all__ = [
    "build",
    "give_own_class",
    "load_plain_weight",
    "make_orthogonal",
    "orthogonal_weight_norm",
    "place_before",
    "register",
    "warnings_last",
]


def orthogonal_weight_norm(
    module: nn.Module,
    name: str = "weight",
    *,
    group_size: int | None = None,
    center: bool = False,
    grouping: Grouping = "balanced",
    tall: Tall = "groups",
    scale: Scale = None,
    initial: Initial = "orthonormal",
    blocks: Blocks = None,
    stacked: bool = False,
    method: MethodName = "auto",
    precision: Precision = "auto",
) -> nn.Module:
    r"""Make a tensor of a module orthogonal, and keep it so while it trains.

    $$W = g \odot \Sigma^{-1/2} V, \quad \Sigma = V V^T, \qquad W W^T = I \text{ in each group of rows, before } g$$

    The parameter stays the same object, now as the unconstrained V, so an optimizer that holds it goes on with it. The
    initial weight is the orthonormal matrix nearest to the weight that was there. The scale is set by the options at
    conversion, and again at `layer.weight = X`, `reset_parameters` and loading of a plain checkpoint.

    Rows are output filters. A convolution is its kernel flattened to `(out, in/groups * k * k)`, each of its own groups
    by itself, and a transposed convolution is brought to that form first. It is the kernel that is orthogonal, not the
    convolution as an operator. The padding row of an embedding stays as it is. With `stacked=True` a parameter
    `(E, n, d)` is E matrices, each orthogonal by itself, with its own groups, blocks and scale.

    If another layer shares the tensor, it goes on with V itself. Call `orthogonalize_` on a module that contains both,
    which keeps them tied.

    The weight is computed at each read. Where a forward reads it many times, as an unrolled cell does, run that inside
    `cached`, or call `register_cached(model)` once.

    Args:
        module: the module that owns the tensor.
        name: the tensor's name.
        group_size: rows per group, at most `d - 1` with centring and `d` without; None for that limit.
        center: subtract each row's mean first, as the paper does.
        grouping: `"balanced"` (groups as even as possible) or `"tail"` (full groups and a smaller last one).
        tall: what a weight of more rows than columns becomes: `"groups"` of orthonormal rows, or `"columns"`,
            orthonormal columns, an isometry of the input (`group_size` is None then and `center` False; blocks are
            equal).
        scale: None; `"learned"` for a learned factor per row that starts at 1, as in the paper; `"row_norms"` for one
            that starts at the row norms of the weight that was there, for pretrained weights; or a fixed positive
            number. A learned one is frozen where the weight is. It is a new parameter: build the optimizer after this
            call, or add it with `add_param_group`.
        initial: what V starts as: `"orthonormal"` for `c W`, where `W` are the orthonormal rows and `c` keeps the norm
            of the weight that was there, so V has condition number 1; `"weight"` for that weight itself, as in the
            paper's experiments. A tensor that another layer shares changes for that layer too.
        blocks: number of equal blocks of rows, or their sizes, that groups must not straddle (gates, projections).
        stacked: whether the tensor is a stack `(E, n, d)` of matrices, such as the experts of a mixture. That of a
            transformers module which stores `(E, d, n)` is read by its outputs.
        method: `"eigh"`, `"newton"` or `"auto"`, as in `functional.orthonormalize`.
        precision: `"auto"` or `"float64"`, as in `functional.orthonormalize`.

    Returns:
        The module.

    Raises:
        TypeError: if `module` is not a module, or the tensor is complex or not floating.
        ValueError: if there is no such parameter, it is parametrized already or its groups cannot be orthonormal. Also
            if an embedding has sparse gradients or a `max_norm`, or if a tensor of three dimensions is neither a
            convolution's kernel nor said to be a stack.

    Examples:
        >>> import torch, orthonorm as on
        >>> layer = on.orthogonal_weight_norm(torch.nn.Linear(64, 32))
        >>> torch.dist(layer.weight @ layer.weight.T, torch.eye(32)) < 1e-5
        tensor(True)

    Source: equation (3) and the group based orthogonalization of the paper; Mathematics (1), (2) and (7).
    """
    options = Options(
        group_size=group_size,
        center=center,
        grouping=grouping,
        tall=tall,
        scale=scale,
        initial=initial,
        blocks=blocks,
        method=method,
        precision=precision,
    )
    return make_orthogonal(module, options, name, stacked=stacked)


def make_orthogonal(module: nn.Module, options: Options, name: str = "weight", *, stacked: bool = False) -> nn.Module:
    """Return the module with an orthogonal tensor: what `orthogonal_weight_norm` does with its options."""
    with warnings_last(5):
        label = f"{name} of {type(module).__name__}"
        return register(module, name, build(module, name, options, label=label, stacked=stacked))


@contextmanager
def warnings_last(stacklevel: int = 4) -> Iterator[None]:
    """Hold back the warnings of a public call until it has done its work, then give them at the caller's line.

    Where warnings are errors, one in the middle would leave a model half converted.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for entry in caught:
        warnings.warn(entry.message, stacklevel=stacklevel)


def _no_parameter(module: nn.Module, name: str) -> str:
    """Return the error for a name that is none of the module's own parameters, with the likely cure."""
    known = [key for key, _ in module.named_parameters(remove_duplicate=False)]
    own = [key for key in known if "." not in key]
    rule = f"{type(module).__name__} has no parameter {name!r} of its own; it has {', '.join(own) or 'none'}."
    path, _, last = name.rpartition(".")
    if name in known and not path.startswith("parametrizations"):
        return f"{rule} Pass its submodule: orthogonal_weight_norm(module.get_submodule({path!r}), {last!r})."
    if name in module._buffers:
        return f"{rule} This is a buffer: make it a torch.nn.Parameter first."
    if near := nearest_name(name, own):
        return f"{rule} Did you mean {near!r}?"
    if own:
        return f"{rule} Pass one of them."
    return f"{rule} {'Call orthogonalize_(model) for its layers.' if known else 'Leave this module out.'}"


def build(module: nn.Module, name: str, options: Options, *, label: str, stacked: bool = False) -> OrthogonalWeightNorm:
    """Return the parametrization for a module's tensor, all checks done and nothing changed yet."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module; got {type(module).__name__}.")
    if not isinstance(name, str):
        raise TypeError(f"name must be the name of a parameter, as 'weight'; got {name!r}.")
    if parametrize.is_parametrized(module, name):
        kind = type(module.parametrizations[name][0]).__name__  # type: ignore[index]
        cure = "Fold it first (orthonorm.fold_)" if kind == "OrthogonalWeightNorm" else "Remove that one first"
        raise ValueError(
            f"{label} is parametrized already, by {kind}. {cure}, or leave it out: orthogonalize_ has filter_fn and "
            "exclude."
        )
    weight = module._parameters.get(name)
    if weight is None:
        refuse_rewritten(module, name, label)
        raise ValueError(_no_parameter(module, name))
    check_table(module, label)
    refuse_unsaid_stack(module, name, weight, stacked, label)
    groups, transposed = row_layout(module, name, stacked=stacked)
    return OrthogonalWeightNorm(
        weight,
        options,
        groups=groups,
        transposed=transposed,
        stacked=stacked,
        constant_row=padding_row(module, name),
        label=label,
    )


def register(module: nn.Module, name: str, parametrization: OrthogonalWeightNorm) -> nn.Module:
    """Register a parametrization that `build` made, with what makes checkpoints and re-initialisation work.

    Raises:
        TypeError: if no class can be derived from the module's class; nothing is changed then.
    """
    first = all(owner is not module for _, owner, _, _ in orthogonal_weights(module))
    names = _plain_order(module)
    parametrization.followers = tuple(names[names.index(name) + 1 :])
    with all_or_nothing([(module, name)]):
        if parametrize.is_parametrized(module):
            give_own_class(module)
        _derive_class(module, name, parametrization)
        registered: dict[str, Any] = module.parametrizations._modules  # type: ignore[union-attr]
        for key in parametrization.followers:
            if key in registered:  # the V of each weight in the order of the weights, whichever was converted first
                registered[key] = registered.pop(key)
        if first:  # another tensor of the module may carry another parametrization already, which has neither
            adapt(module)
            module.register_load_state_dict_pre_hook(load_plain_weight)
            adapt_resets(module)
        if parametrization.stacked:
            read_once(module)
        adapt_assignment(module, name)
    await_values(parametrization, unconstrained(module, name), parametrization.scale)
    return module


def give_own_class(module: nn.Module) -> None:
    """Give a parametrized module a copy of its class, which is about to be edited.

    torch's deepcopy of a parametrized module shares the class that was derived for it with the copy. A property that is
    added to that class, or removed, would break the other one.
    """
    cls = type(module)
    module.__class__ = type(cls.__name__, cls.__bases__, dict(cls.__dict__))  # type: ignore[assignment]


def _derive_class(module: nn.Module, name: str, parametrization: OrthogonalWeightNorm) -> None:
    """Let torch register the parametrization, which derives a class from the module's own."""
    cls = type(module)
    try:
        parametrize.register_parametrization(module, name, parametrization)
    except Exception as error:
        if name in module._parameters or parametrize.is_parametrized(module):
            raise
        raise TypeError(
            f"{parametrization.label}: torch's parametrize derives a class from {cls.__name__}, to compute the weight "
            f"in it, and {cls.__name__} allows none ({error}). Let its __init_subclass__ or metaclass go without "
            "arguments, or leave this layer out."
        ) from error


def _plain_order(module: nn.Module) -> list[str]:
    """Return the names of a module's parameters in the order that they had before some became orthogonal."""
    names = list(module._parameters)
    for _, owner, name, parametrization in orthogonal_weights(module):
        if owner is module:
            names.insert(place_before(names, parametrization.followers), name)
    return names


def place_before(names: list[str], followers: Sequence[str]) -> int:
    """Return the place of the first of the followers that is there; the end if none is."""
    return min((names.index(key) for key in followers if key in names), default=len(names))


def load_plain_weight(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Let a checkpoint of the plain model load: V and a learned scale start from its weight."""
    for name, parametrizations in getattr(module, "parametrizations", {}).items():
        weight = state_dict.get(prefix + name)
        original = f"{prefix}parametrizations.{name}.original"
        owner = parametrizations[0]
        if not isinstance(owner, OrthogonalWeightNorm) or weight is None:
            continue
        V = unconstrained(module, name)
        # Where a file has no V, torch.distributed puts the module's own in its place.
        if state_dict.get(original, V) is not V:
            continue
        del state_dict[prefix + name]
        fits = isinstance(weight, Tensor) and tuple(weight.shape) == owner.shape  # if not, torch is about to say so
        if fits and not weight.is_floating_point():
            weight = weight.to(V.dtype)  # as torch does for the plain layer
        state_dict[original] = owner.initial_V(weight) if fits and not weight.is_meta else weight
        if isinstance(owner.scale, Tensor):
            scale = initial_scale(owner, weight) if fits else owner.scale
            state_dict[f"{prefix}parametrizations.{name}.0.scale"] = scale
