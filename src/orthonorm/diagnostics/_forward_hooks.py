"""A model run as it is written, so that hooks on its layers see every call."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

__all__ = ["LAYERS", "as_written", "evaluating"]

LAYERS = (nn.Linear, nn.modules.conv._ConvNd)
"""The types that are looked at."""


@contextmanager
def as_written(model: nn.Module) -> Iterator[nn.Module]:
    """Give the module behind `torch.compile`, inside neither compiled code nor inference mode.

    Code that was compiled before a hook was registered does not call it, and torch does not compile again for hooks; in
    inference mode nothing can be differentiated.

    Raises:
        TypeError: if `model` is not a module.

    Examples:
        >>> import torch
        >>> with as_written(torch.nn.Linear(2, 2)) as layer:
        ...     layer(torch.zeros(1, 2)).requires_grad
        True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module; got {type(model).__name__}.")
    # Where nothing has been compiled yet, Dynamo is not imported either, which takes seconds.
    eager = torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
    with torch.inference_mode(False), eager:
        yield getattr(model, "_orig_mod", model)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model into evaluation mode and back, each module into the mode that it was in.

    Examples:
        >>> layer = nn.Dropout()
        >>> with evaluating(layer):
        ...     layer.training
        False
        >>> layer.training
        True
    """
    training = [module for module in model.modules() if module.training]
    try:
        model.eval()
        yield
    finally:
        for module in training:
            module.training = True
