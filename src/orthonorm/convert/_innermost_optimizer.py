"""The optimizer that takes the steps, inside wrappers such as accelerate's."""

from torch.optim import Optimizer

__all__ = ["innermost_optimizer"]


def innermost_optimizer(optimizer: Optimizer) -> Optimizer:
    """Return the optimizer that a wrapper holds in its attribute `optimizer`, through all wrappers.

    The wrapper of accelerate is an `Optimizer` too, but takes no hooks.
    """
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    return optimizer
