"""A warning where one forward computes one unchanged weight many times: an unrolled cell without `cached`."""

import warnings
import weakref
from typing import Any

from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction

__all__ = ["RepeatedReads"]

# Note [computations that could have been one]
# Computations of an unchanged V belong together where the graphs of all of them wait for their backward. A backward
# without `retain_graph` releases what a graph has saved, and a result that nobody holds takes its graph with it. So
# neither batches whose gradients are accumulated, nor the steps of an optimizer that counts no versions, nor a loop
# that keeps its losses are counted, whatever becomes of `V.grad`. A graph is known by the node of the transformation
# in it, a Python object; here are only weak references to it.
_MANY = 20


class RepeatedReads:
    """The computations of one weight that wait for their backward. It is empty in a copy, and no part of any state."""

    def __init__(self) -> None:
        self.version: int = -1
        self.waiting: list[weakref.ref[Any]] = []
        self.told: bool = False

    def __reduce__(self) -> tuple[type["RepeatedReads"], tuple[()]]:
        return RepeatedReads, ()

    def note(self, owner: Any, V: Tensor, weight: Tensor) -> None:
        """Count a computation, and warn once if there are many of the same V."""
        if self.told or not owner.training or type(V) is not nn.Parameter or not weight.requires_grad:
            return
        if self.version != V._version:
            self.version, self.waiting = V._version, []
        node = _node_of_transformation(weight)
        if node is None:
            return
        self.waiting.append(weakref.ref(node))
        if len(self.waiting) < _MANY:
            return
        self.waiting = [reference for reference in self.waiting if _waits(reference())]
        if len(self.waiting) >= _MANY:
            self.told, self.waiting = True, []
            warnings.warn(
                f"{owner.label} was computed {_MANY} times from the same V before a backward, as in an unrolled cell. "
                "Run the loop inside `with orthonorm.cached(model):`, or call orthonorm.register_cached once on the "
                "module whose forward contains the loop, and it is computed once.",
                stacklevel=2,
            )


def _node_of_transformation(weight: Tensor) -> Any:
    """Return the node of the graph that the orthonormal rows come from; None where there is none."""
    node: Any = weight.grad_fn
    while node is not None and not isinstance(node, BackwardCFunction):
        node = node.next_functions[0][0] if node.next_functions else None
    return node


def _waits(node: Any) -> bool:
    """Return whether a graph is still there, with what it has saved for its backward."""
    if node is None:
        return False
    try:
        # Not `saved_tensors`, which unpacks: non-reentrant activation checkpointing would compute a forward again.
        return len(node._raw_saved_tensors) > 0
    except RuntimeError:  # released by a backward
        return False
