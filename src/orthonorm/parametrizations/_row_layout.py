"""How the weight of a module lies: which of its dimensions are outputs."""

from torch import nn

__all__ = ["row_layout", "stores_inputs_first"]


def row_layout(module: nn.Module) -> tuple[int, bool]:
    """Return `(groups, transposed)`, which say how the module's weight is brought to rows (`functional._rows`)."""
    if isinstance(module, nn.modules.conv._ConvNd):
        return module.groups, module.transposed
    return 1, stores_inputs_first(module)


def stores_inputs_first(module: nn.Module) -> bool:
    """Return whether the module is a linear layer of transformers that stores its weight as `(in, out)` (`Conv1D`).

    It is recognised by its name, since the library imports nothing but torch.
    """
    return any(
        cls.__name__ == "Conv1D" and cls.__module__ == "transformers.pytorch_utils" for cls in type(module).__mro__
    )
