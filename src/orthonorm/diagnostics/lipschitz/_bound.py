"""A certain upper bound of a network's Lipschitz constant, layer by layer."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from orthonorm._nearest_name import nearest_name
from orthonorm._text_table import text_table
from orthonorm.diagnostics._forward_hooks import as_written, evaluating
from orthonorm.functional.norms._norm_bounds import rounded_up
from orthonorm.parametrizations._arguments import refuse_meta

from ._constants import lipschitz_constant
from ._layers import LAYER_RULES, Answer, Step
from ._pooling import POOLING_RULES

__all__ = ["LayerBound", "LipschitzBound", "lipschitz_bound"]

_Constant = float | int | Callable[[Any], float]
_RULES = dict([*LAYER_RULES, *POOLING_RULES])


@dataclass(frozen=True)
class LayerBound:
    """An upper bound of the Lipschitz constant of one step of a network.

    Attributes:
        layer: fully qualified name.
        kind: name of its class.
        bound: its Lipschitz constant is at most this; NaN where the weight is not finite.
        how: how it was found.
    """

    layer: str
    kind: str
    bound: float
    how: str


@dataclass(frozen=True)
class LipschitzBound:
    """An upper bound of a network's Lipschitz constant, and of its steps'; prints as a table.

    Attributes:
        bound: the network's Lipschitz constant is at most this: the product of the steps', rounded up.
        layers: in the order in which they run; a layer that stands there twice, twice.
    """

    bound: float
    layers: tuple[LayerBound, ...]

    def __str__(self) -> str:
        """Return the table, one row a step, and the product below it."""
        rows = [(row.layer, row.kind, f"{row.bound:.6g}", row.how) for row in self.layers]
        lines = text_table(("layer", "type", "bound", "how"), [*rows, ("", "product", f"{self.bound:.6g}", "")])
        return "\n".join([*lines[:-1], lines[1], lines[-1]])


def lipschitz_bound(
    model: nn.Module,
    input_shape: Sequence[int] | None = None,
    *,
    constants: Mapping[Any, _Constant] | None = None,
) -> LipschitzBound:
    r"""Return an upper bound of a network's Lipschitz constant in the Euclidean norm, never below it by rounding.

    $$|f(x) - f(y)| \le L \, |x - y|, \qquad L = \prod_l \operatorname{Lip}(f_l) \quad \text{for } f = f_m \circ \cdots
    \circ f_1$$

    The network is taken in evaluation mode, and as the function that its stored weights define in exact arithmetic. The
    rounding of its own forward pass, and forward hooks, are not part of it.

    It knows `Sequential`s in any depth of Linear and convolutions (plain, parametrized and orthogonal), activations,
    pooling, normalization, dropout, padding and reshaping. BatchNorm counts with its running statistics. LayerNorm and
    its relatives count with their true constant, `max |gamma| / sqrt(eps)`, which is large.

    Args:
        model: the network.
        input_shape: the shape of one sample, without the batch; None for a bound that holds for all sizes. With it the
            bound is tighter behind convolutions, and adaptive pooling is known. A batch of one such sample of zeros is
            run.
        constants: the Lipschitz constants of modules that are not known or that you know better, by their qualified
            name or their class: a number, or a function from the module to a number. So a residual block of the class
            `Residual` with a branch `body` is `{Residual: lambda block: 1 + on.lipschitz_bound(block.body).bound}`.

    Returns:
        The bound, and a table of the steps as its text. The bound is NaN where a weight is not finite.

    Raises:
        TypeError: if `model` is not a module; for a module that is not known, by name, with how to declare it.
        ValueError: if an activation jumps (`Hardshrink`), so that there is no bound, or if a bound needs `input_shape`.
            Also if a weight has no values or is rewritten by a hook, or if a constant is negative, not finite or of no
            module.

    Examples:
        >>> import torch, orthonorm as on
        >>> model = torch.nn.Sequential(on.OrthogonalLinear(8, 6), torch.nn.GELU(), on.OrthogonalLinear(6, 4))
        >>> found = on.lipschitz_bound(model)
        >>> round(found.bound, 5), [row.kind for row in found.layers]
        (1.1289, ['OrthogonalLinear', 'GELU', 'OrthogonalLinear'])
    """
    with as_written(model) as model, evaluating(model), torch.no_grad():
        declared = dict(constants or {})
        _check_names(model, declared)
        if isinstance(input_shape, int):
            raise TypeError(f"input_shape must be a sequence of numbers; got {input_shape}. Pass ({input_shape},).")
        x = None if input_shape is None else _zeros(model, input_shape)
        rows, bound = [], 1.0
        for fqn, module in _steps("", model, declared):
            step = Step(fqn or "the model", module)
            if x is not None:
                before, x = x.shape, _run(step, x)
                step = replace(step, source=before, target=x.shape)
            kind = next(cls.__name__ for cls in type(module).__mro__ if not cls.__name__.startswith("Parametrized"))
            row = LayerBound(fqn, kind, *_bound(fqn, step, declared))
            rows.append(row)
            bound = bound * row.bound if 1.0 in (bound, row.bound) else rounded_up(bound * row.bound)
    return LipschitzBound(bound, tuple(rows))


def _run(step: Step, x: Tensor) -> Tensor:
    try:
        return step.module(x)
    except (RuntimeError, IndexError, ValueError) as error:
        raise ValueError(
            f"input_shape must be that of one sample, without the batch; {step.label} does not take an input of shape "
            f"{tuple(x.shape)}: {error}"
        ) from error


def _zeros(model: nn.Module, shape: Sequence[int]) -> Tensor:
    """Return a batch of one sample in the type and on the device of the model."""
    floating = (t for t in [*model.parameters(), *model.buffers()] if t.is_floating_point())
    like = next(floating, None)
    return torch.zeros(1, *shape, device="cpu") if like is None else like.new_zeros(1, *shape)


def _steps(fqn: str, module: nn.Module, declared: Mapping[Any, Any]) -> Iterator[tuple[str, nn.Module]]:
    """Yield name and module of each step, through `Sequential`s and wrappers; one that stands twice, twice."""
    name, inner = _inside(fqn, module)
    chain = type(inner).forward is nn.Sequential.forward and not _is_altered(inner)
    if _declared(name, inner, declared) is not None or not chain:
        yield name, inner
        return
    for key, child in inner._modules.items():
        assert child is not None  # a Sequential calls each
        yield from _steps(f"{name}.{key}" if name else key, child, declared)


def _inside(fqn: str, module: nn.Module) -> tuple[str, nn.Module]:
    """Return what a wrapper that changes no value calls, and its name."""
    while True:
        if hasattr(module, "_orig_mod"):  # behind torch.compile
            key, module = "_orig_mod", module._orig_mod  # type: ignore[assignment]
        elif isinstance(module, nn.DataParallel | DistributedDataParallel | AveragedModel):
            key, module = "module", module.module
        else:
            return fqn, module
        fqn = f"{fqn}.{key}" if fqn else key


def _declared(fqn: str, module: nn.Module, declared: Mapping[Any, _Constant]) -> _Constant | None:
    """Return what the caller said of a module: by its name first, then by its class."""
    if fqn in declared:
        return declared[fqn]
    return next((value for key, value in declared.items() if isinstance(key, type) and isinstance(module, key)), None)


def _check_names(model: nn.Module, declared: Mapping[Any, _Constant]) -> None:
    names = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    for key in declared:
        if isinstance(key, type) and issubclass(key, nn.Module):
            continue
        if key not in names:
            near = nearest_name(key, names) if isinstance(key, str) else None
            meant = f" Did you mean {near!r}?" if near else ""
            raise ValueError(
                "a key of constants must be the qualified name of a module of the model, or a class of modules; got "
                f"{key!r}.{meant}"
            )


def _bound(fqn: str, step: Step, declared: Mapping[Any, _Constant]) -> tuple[float, str]:
    module, label = step.module, step.label
    constant = _declared(fqn, module, declared)
    if constant is not None:
        # A function may have added bounds.
        value = rounded_up(float(constant(module))) if callable(constant) else float(constant)
        if not 0 <= value < math.inf:
            raise ValueError(f"a Lipschitz constant must be a finite number of at least 0; got {value} for {label}.")
        return value, "declared"
    answer = _known(step)
    if answer is None:
        by_name = f"constants={{{fqn!r}: number}} or " if fqn else ""
        raise TypeError(
            "lipschitz_bound knows Linear, convolutions, activations, pooling and normalization in Sequentials; "
            f"got {label}, a {type(module).__name__}. Declare its Lipschitz constant with {by_name}"
            f"constants={{{type(module).__name__}: function}}, or pass the parts before and after it separately."
        )
    if answer[0] == math.inf:
        raise ValueError(
            f"{label}, a {module}, jumps or grows without limit, so no Lipschitz constant bounds it. Pass the parts "
            "before and after it by themselves, or use a continuous function."
        )
    return answer


def _is_altered(module: nn.Module) -> bool:
    """Return whether a module computes otherwise than the `forward` of its class says."""
    if "forward" in module.__dict__ or type(module).__call__ is not nn.Module.__call__:
        return True
    # The function that torch's convolutions call, which weight standardization and its like override.
    inner = getattr(type(module), "_conv_forward", None)
    kinds = (nn.modules.conv._ConvNd, nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return inner not in (None, *(kind._conv_forward for kind in kinds))


def _known(step: Step) -> Answer:
    module = step.module
    if _is_altered(module):
        return None
    tensors = [*module.parameters(), *module.buffers()]  # V of a parametrized weight, too
    if any(map(nn.parameter.is_lazy, tensors)):
        raise ValueError(f"{step.label} has no shape yet (a lazy module). Run one batch through the model first.")
    for tensor in tensors:
        refuse_meta(tensor, step.label, "lipschitz_bound")
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors if tensor.is_floating_point()):
        return math.nan, "not finite"
    rule = _RULES.get(type(module).forward)
    if rule is not None:
        return rule(step)
    constant = lipschitz_constant(module)
    return None if constant is None else (constant, "steepest slope")
