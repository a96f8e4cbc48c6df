"""What the optimizers on the Stiefel manifold share: parameter groups, construction, the step."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from numbers import Real
from typing import Any

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.optim import Optimizer

from orthonorm._nearest_name import nearest_name
from orthonorm.functional._groups import check_group_arguments
from orthonorm.functional._matmul_precision import full_float32
from orthonorm.functional._precision import without_autocast
from orthonorm.functional.stiefel._retractions import check_pair

from ._blocks import Blocks, batches, grad_of
from ._initial_projection import check_weight, put_on_manifold

__all__ = ["Params", "StiefelOptimizer", "check_number"]

# Keys that torch, its schedulers and the usual tools put into a group, and read there.
_OF_OTHERS = {
    "params", "param_names", "name", "layer_id", "initial_lr", "min_lr", "max_lr", "swa_lr", "base_momentum",
    "max_momentum", "foreach", "fused", "capturable",
}  # fmt: skip
# Options of torch's optimizers that would do nothing here, so that only their neutral values are taken.
_TORCHS_OPTIONS = {"dampening", "maximize", "amsgrad", "differentiable", "decoupled_weight_decay"}

Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]


class StiefelOptimizer(Optimizer, ABC):
    """An optimizer whose groups are on the manifold (`manifold=True`) or ordinary (`False`)."""

    _takes_shards = False
    _constructing = False

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        check_number("weight_decay", defaults["weight_decay"])
        self._constructing = True
        super().__init__(params, defaults)
        on_manifold = [group for group in self.param_groups if group["manifold"]]
        if defaults["weight_decay"] != 0 and len(on_manifold) == len(self.param_groups):
            raise ValueError(
                f"weight_decay={defaults['weight_decay']} would do nothing: it acts on groups with manifold=False "
                "and there is none (a weight with orthonormal rows has a constant norm). Leave it at 0, or give the "
                "Euclidean group its own weight_decay."
            )
        put_on_manifold(on_manifold, type(self).__name__, stacklevel=4, eps=self._eps)
        self._constructing = False

    def __setstate__(self, state: dict[str, Any]) -> None:
        # `load_state_dict` ends here, after its hooks, and has not changed the optimizer yet; so does unpickling.
        if "defaults" not in state:
            for i, (here, saved) in enumerate(zip(self.param_groups, state["param_groups"], strict=True)):
                _check_saved(i, saved, here, [name for name in self.defaults if name in here], type(self).__name__)
        super().__setstate__(state)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group; its weights are put on the manifold if they are off it.

        Args:
            param_group: `params` and any option of the constructor, `manifold` included.

        Raises:
            TypeError, ValueError: a weight or an option that the method cannot take.
        """
        group = dict(param_group)
        _check_keys(group, self.defaults)
        on_manifold = group.get("manifold", self.defaults["manifold"])
        if on_manifold and group.get("weight_decay", 0) != 0:
            raise ValueError(
                f"weight_decay={group['weight_decay']} in a group on the manifold would do nothing: a weight with "
                "orthonormal rows has a constant norm. Remove it, or set manifold=False for this group."
            )
        if on_manifold:
            group["weight_decay"] = 0.0
        self._check_options({**self.defaults, **group})
        super().add_param_group(group)
        added = self.param_groups[-1]
        if not on_manifold:
            return
        try:
            _check_names(added)
            for param in added["params"]:
                check_weight(param, added["group_size"], self._takes_shards, added["stacked"])
            # The constructor moves weights when all of its groups are checked.
            if not self._constructing:
                put_on_manifold([added], type(self).__name__, stacklevel=3, eps=self._eps)
        except BaseException:
            self.param_groups.pop()
            raise

    def _eps(self, group: dict[str, Any]) -> float:
        """Return how far from the manifold the weights of a group may be at construction."""
        return 0.0

    def _check_options(self, options: dict[str, Any]) -> None:
        for name in ("manifold", "stacked"):
            if not isinstance(options[name], bool):
                raise TypeError(f"{name} must be True or False; got {options[name]!r}.")
        lr = options["lr"]
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise ValueError(f"lr must have one element, as a tensor; got the shape {tuple(lr.shape)}. Pass a number.")
        for name in ("lr", "weight_decay"):
            check_number(name, options[name])
        if options["manifold"]:
            if "metric" in options:
                check_pair(options["metric"], options["retraction"])
            check_group_arguments(options["group_size"], "balanced")

    # Note [a step is left out of compiled graphs]
    # Which weights have gradients, the learning rate and the count of steps are values that a graph would be compiled
    # for, again at each change. So dynamo breaks the graph at a step and runs it as it is. The function that it meets
    # is the outermost: torch would wrap `step` to run its hooks, and the wrapper would be traced. `_disable_dynamo` is
    # what torch's own optimizers use; `torch.compiler.disable` would import all of dynamo with this module.
    @_disable_dynamo
    @Optimizer.profile_hook_step
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        """Step every parameter that has a gradient; gradients are left as they are.

        It is left out of what `torch.compile` compiles, so a function that steps has a break in its graph there.

        Args:
            closure: recomputes the loss and its gradients, and returns the loss.

        Returns:
            What the closure returned, or `None`.

        Raises:
            TypeError: a weight has a sparse gradient that its group cannot take. No weight is stepped then.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        stepping = [
            (group, [param for param in group["params"] if param.grad is not None]) for group in self.param_groups
        ]
        for group, params in stepping:
            self._check_gradients(group, params)
        for group, params in stepping:
            if not group["manifold"]:
                self._euclidean_step(group, params)
                continue
            self._begin_step(group, params)
            for blocks in batches(params, group["group_size"], group["stacked"]):
                first = blocks.params[0]
                with without_autocast(first.device), full_float32(first.device, first.dtype):
                    self._manifold_step(group, blocks)
        return loss

    def _check_gradients(self, group: dict[str, Any], params: list[Tensor]) -> None:
        needed = self._dense_for(group)
        if needed is None:
            return
        what, cure = needed
        for param in params:
            if grad_of(param).layout is not torch.strided:
                raise TypeError(f"{what} needs a dense gradient; got {grad_of(param).layout}. To cure it, {cure}.")

    step.hooked = True  # type: ignore[attr-defined]  # so torch does not wrap it once more

    @abstractmethod
    def _dense_for(self, group: dict[str, Any]) -> tuple[str, str] | None:
        """What in a group needs dense gradients, and what to do about a sparse one; None where one is taken."""

    @abstractmethod
    def _euclidean_step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """Step parameters of an ordinary group."""

    @abstractmethod
    def _begin_step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        """Create missing state and count the step, once a parameter."""

    @abstractmethod
    def _manifold_step(self, group: dict[str, Any], blocks: Blocks) -> None:
        """Step a batch of blocks of one shape."""


def check_number(name: str, value: Any) -> None:
    """Raise unless an option is a number, or a tensor, of 0 or more."""
    if isinstance(value, bool) or not isinstance(value, Real | Tensor):
        raise TypeError(f"{name} must be a number; got {value!r}.")
    if not value >= 0:  # type: ignore[operator]
        raise ValueError(f"{name} must be 0 or more; got {value}.")


def _check_keys(group: dict[str, Any], options: dict[str, Any]) -> None:
    """Refuse a key that is no option and that nothing reads.

    An option's name with a word behind it, as `lr_scale`, is a name of its own: a scheduler reads it.
    """
    for key in group.keys() - options.keys() - _OF_OTHERS:
        if any(key.startswith(f"{option}_") and key != f"{option}_" for option in options):
            continue
        if key in _TORCHS_OPTIONS and not group[key]:
            continue
        near = nearest_name(key, options)
        meant = f"; did you mean {near!r}?" if near else "."
        raise ValueError(
            f"a parameter group has no option {key!r}, which would do nothing{meant} The options are "
            f"{', '.join(options)}. Set a key that something else reads in param_groups, after the optimizer is made."
        )


def _check_saved(i: int, saved: dict[str, Any], here: dict[str, Any], options: list[str], name: str) -> None:
    """Refuse the group of another optimizer's state, or of another kind of group."""
    missing = [option for option in options if option not in saved]
    if missing:
        raise ValueError(
            f"the state must have {', '.join(options)} in each group, as {name} saves it; group {i} has no "
            f"{', '.join(missing)}, so another optimizer saved it. Load it into an optimizer of that kind, or load "
            "only the weights of the model."
        )
    if saved["manifold"] != here["manifold"]:
        raise ValueError(
            f"group {i} of the state must have manifold={here['manifold']}, as this optimizer has; got "
            f"manifold={saved['manifold']}. Pass the parameter groups in the order in which they were saved."
        )


def _check_names(group: dict[str, Any]) -> None:
    """Refuse a weight that is, by its name, an unconstrained parameter V, or a stack that is not said to be one."""
    names = group.get("param_names", [])
    for name, param in zip(names, group["params"], strict=False):
        if ".parametrizations." in f".{name}" and name.endswith(".original"):
            raise ValueError(
                f"{name} is the unconstrained parameter of a converted layer, whose weight is orthogonal already. "
                "Pass it to an ordinary optimizer, torch.optim.SGD(orthonorm.param_groups(model)), or do not "
                "convert the layer and pass its weight to this optimizer."
            )
        if param.ndim == 3 and not group["stacked"] and name.rpartition(".")[2] != "weight":
            raise ValueError(
                f"{name} has three dimensions, {tuple(param.shape)}, and is no convolution's kernel by its name. Pass "
                "stacked=True in its parameter group for a stack of matrices, or name it weight."
            )
