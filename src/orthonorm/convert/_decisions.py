"""What a conversion does with each weight of a model: decided once, shown by the plan and carried out as it is."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList, is_parametrized

from orthonorm.functional._groups import operations
from orthonorm.parametrizations._orthogonal_weights import unconstrained
from orthonorm.parametrizations._registration import build
from orthonorm.parametrizations._row_layout import is_stack_of_experts
from orthonorm.parametrizations._weight_norm import OrthogonalWeightNorm

from ._choice import Filter, reasons_to_leave, row_length
from ._config import OrthogonalConfig
from ._exclusion import Exclusion
from ._layer_rules import Target, known_types, targets_of
from ._plan import Decision, PlannedWeight

__all__ = ["FROZEN", "ORTHOGONAL_ALREADY", "Step", "decide"]

FROZEN = "frozen (requires_grad=False)"
ORTHOGONAL_ALREADY = "orthogonal already"


@dataclass
class Step:
    """One weight of a model and what the conversion does with it."""

    key: str
    module: nn.Module
    name: str
    tensor: Tensor | None = None
    """The parameter that the weight is, or is computed from; None where the module has none of that name."""
    orthogonal: bool = False
    """Whether it is an orthogonal weight of this library already."""
    why: str = ""
    parametrization: OrthogonalWeightNorm | None = None
    """What makes it orthogonal; None if it is left as it is."""
    error: Exception | None = None
    """Why it cannot be converted although it was chosen."""
    tied_to: str = ""

    def leave(self, why: str) -> None:
        """Take the weight out of the conversion."""
        self.parametrization, self.why = None, why

    def refuse(self, error: Exception) -> None:
        """Take the weight out of the conversion for an error, which `orthogonalize_` raises."""
        self.parametrization, self.error, self.why = None, error, str(error)

    def row(self) -> PlannedWeight:
        """Return the row of the plan."""
        owner = self.parametrization
        decision: Decision = "refused" if self.error else "left" if owner is None else "converted"
        if decision == "left" and self.orthogonal:
            module: Any = self.module
            decision, owner = "orthogonal", module.parametrizations[self.name][0]
        shape = () if self.tensor is None or _is_lazy(self.tensor) else tuple(self.tensor.shape)
        groups = "" if owner is None else owner.describe_groups()
        cost = 0 if owner is None or self.tensor is None else _operations(owner, self.tensor)
        kind = type(self.module).__name__
        kind = kind.removeprefix("Parametrized") if is_parametrized(self.module) else kind
        why = f"{self.why}; tied to {self.tied_to}" if self.tied_to else self.why
        return PlannedWeight(self.key, kind, shape, decision, groups, cost, why, self.tied_to)


def _is_lazy(tensor: Tensor) -> bool:
    return isinstance(tensor, nn.parameter.UninitializedParameter)


def _operations(owner: OrthogonalWeightNorm, tensor: Tensor) -> int:
    parts, _, d = owner.rows(tensor.detach()).shape
    return parts * sum(operations(size, d) for size in owner.sizes)


Steps = dict[tuple[int, str], Step]


def decide(model: nn.Module, config: OrthogonalConfig, filter_fn: Filter | None, exclude: Iterable[str]) -> list[Step]:
    """Return what a conversion does with each weight of a model, every check made and nothing changed yet."""
    steps = {(id(step.module), step.name): step for step in _weights(model)}
    exclusion = Exclusion(model, exclude)
    exclusion.check((step.module, step.name) for step in steps.values())
    why_left = reasons_to_leave(model)
    chosen = [
        (fqn, module)
        for fqn, module in model.named_modules()
        if (why_left(module) is None if filter_fn is None else filter_fn(module, fqn))
    ]
    taken = {id(module) for _, module in chosen}
    targets = _find_targets(chosen, config, steps)
    for place, step in steps.items():
        pattern = exclusion.find(step.module, step.name)
        if pattern is not None:
            step.error = None
            step.leave(f"excluded by {pattern!r}")
        elif step.error is not None:
            continue
        elif place not in targets:
            step.leave(_why_not_a_target(step, filter_fn, id(step.module) in taken, why_left(step.module)))
        elif step.orthogonal and filter_fn is None:
            step.leave(ORTHOGONAL_ALREADY)
        elif step.tensor is not None and not step.tensor.requires_grad and not step.orthogonal:
            step.leave(FROZEN)
        else:
            _build(step, targets[place], config, "by default" if filter_fn is None else "chosen by filter_fn")
    _settle_shared_tensors(list(steps.values()), default=filter_fn is None)
    return list(steps.values())


def _find_targets(
    chosen: list[tuple[str, nn.Module]], config: OrthogonalConfig, steps: Steps
) -> dict[tuple[int, str], Target]:
    """Return the tensors of the chosen modules that are to become orthogonal, by module and name.

    What a chosen module has not, or no rule knows, becomes a step, too, so that it is refused by name.
    """
    targets: dict[tuple[int, str], Target] = {}
    for fqn, module in chosen:
        try:
            found = _targets(module, fqn, config)
        except (TypeError, ValueError) as error:
            steps[id(module), ""] = Step(fqn, module, "", error=error, why=str(error))
            continue
        for target in found:
            path, _, name = target.name.rpartition(".")
            owner = module.get_submodule(path)
            label = f"{fqn}.{target.name}" if fqn else target.name
            steps.setdefault((id(owner), name), Step(label, owner, name))
            # An attention's output projection is a Linear of its own, too: the first says how.
            targets.setdefault((id(owner), name), target)
    return targets


def _weights(model: nn.Module) -> Iterator[Step]:
    """Yield the tensors of a model that could be made orthogonal: the parameters of two or more dimensions."""
    for fqn, module in model.named_modules():
        if isinstance(module, ParametrizationList):
            continue
        prefix = f"{fqn}." if fqn else ""
        # Not as an attribute: a wrapper that hands on what it has not itself would show those of the module in it.
        parametrized: Any = module._modules.get("parametrizations") or {}
        for name, parametrizations in parametrized.items():
            ours = isinstance(parametrizations[0], OrthogonalWeightNorm)
            own = [p for p in parametrizations.parameters(recurse=False) if p.ndim >= 2]
            if ours or own:
                yield Step(prefix + name, module, name, unconstrained(module, name) if ours else own[0], ours)
        for name, parameter in module._parameters.items():
            if parameter is None:
                continue
            if name.startswith("weight") if _is_lazy(parameter) else parameter.ndim >= 2:
                yield Step(prefix + name, module, name, parameter)


def _targets(module: nn.Module, fqn: str, config: OrthogonalConfig) -> list[Target]:
    """Return the tensors of a chosen module that are to become orthogonal."""
    label = fqn or "the model"
    try:
        targets = targets_of(module, fqn)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{label}: {error}") from None
    if targets is None:
        raise TypeError(
            f"orthogonalize_ knows {known_types()}; the filter chose {label!r}, a {type(module).__name__}. Narrow the "
            "filter, or call orthogonal_weight_norm(module, name) on a matrix of it whose rows are its outputs."
        )
    return [target for target in targets if config.input_weights or not target.input_weight]


def _why_not_a_target(step: Step, filter_fn: Filter | None, taken: bool, why_left: str | None) -> str:
    """Return why a weight that no rule of a chosen layer names is left as it is."""
    if step.orthogonal:
        return ORTHOGONAL_ALREADY
    if filter_fn is not None and not taken:
        return "filter_fn does not choose it"
    if step.name.startswith("weight_ih") and isinstance(step.module, nn.RNNBase | nn.RNNCellBase):
        needed = "input_weights=True" if taken else "filter_fn and input_weights=True"
        return f"input weight of a recurrent layer: taken with {needed}"
    if why_left is None or taken:
        return "no weight that the rule of its layer type names"
    dimensions = 0 if step.tensor is None or _is_lazy(step.tensor) else step.tensor.ndim
    if dimensions > 2 and not isinstance(step.module, nn.modules.conv._ConvNd | nn.Bilinear):
        if dimensions > 3 or is_stack_of_experts(step.module):
            return why_left if dimensions == 3 else "more than two dimensions, and no convolution's kernel"
        return (
            "three dimensions, as a position embedding has; a stack of matrices: orthogonal_weight_norm, stacked=True"
        )
    return why_left


def _build(step: Step, target: Target, config: OrthogonalConfig, why: str) -> None:
    options = config.options_for(target, row_length(step.module, step.name, stacked=target.stacked))
    try:
        step.parametrization = build(step.module, step.name, options, label=step.key, stacked=target.stacked)
    except (TypeError, ValueError) as error:
        step.refuse(error)
        return
    by_type = target.blocks_are and options.blocks == target.blocks
    step.why = f"{why}; {target.blocks_are}" if by_type else why


def _settle_shared_tensors(steps: list[Step], default: bool) -> None:
    """Let the layers that share a tensor have one decision: converted in one way, left, or refused."""
    users: dict[int, list[Step]] = {}
    for step in steps:
        if step.tensor is not None:
            users.setdefault(id(step.tensor), []).append(step)
    for first, *others in users.values():
        for step in others:
            step.tied_to = first.key
        converted = [step for step in (first, *others) if step.parametrization is not None]
        plain = [step for step in (first, *others) if step.parametrization is None]
        if converted and plain:
            for step in converted:
                _follow(step, plain[0], default)
        for step in converted[1:]:
            _check_one_way(converted[0], step)


def _follow(step: Step, plain: Step, default: bool) -> None:
    """Leave a weight as it is, or refuse it, for another user of its tensor that is not converted."""
    if default or plain.why.startswith("excluded"):
        state = ORTHOGONAL_ALREADY if plain.orthogonal else "left"
        step.leave(f"shares its tensor with {plain.key}, which is {state}")
        return
    step.refuse(
        ValueError(
            f"{plain.key} shares its tensor with a chosen layer but is not chosen itself, so the two would no longer "
            "compute with one weight. Choose both, or leave both out."
        )
    )


def _check_one_way(first: Step, step: Step) -> None:
    if first.parametrization is None or step.parametrization is None:
        return
    if first.parametrization.key() != step.parametrization.key():
        step.refuse(
            ValueError(
                f"{step.key} shares its tensor with {first.key}, but the two would be made orthogonal in different "
                "ways (their types, blocks or a padding row differ). Leave both out. If a padding row differs, set "
                "padding_idx=None. If blocks do, call orthogonal_weight_norm on both with the same ones, which ties V "
                "and not a learned scale."
            )
        )
