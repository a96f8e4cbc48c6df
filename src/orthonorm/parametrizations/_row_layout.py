"""How the weight of a module lies: which of its dimensions are outputs."""

from torch import nn

__all__ = ["is_stack_of_experts", "padding_row", "row_layout", "stores_inputs_first"]


def row_layout(module: nn.Module, name: str, *, stacked: bool = False) -> tuple[int, bool]:
    """Return `(groups, transposed)`, which say how a module's tensor is brought to rows (`functional._rows`)."""
    if stacked:
        return 1, is_stack_of_experts(module) and bool(module.is_transposed)
    if name == "weight" and isinstance(module, nn.modules.conv._ConvNd):
        return module.groups, module.transposed
    return 1, name == "weight" and stores_inputs_first(module)


def padding_row(module: nn.Module, name: str) -> int | None:
    """Return the row of an embedding's table that stands for padding and is no weight; None for every other tensor."""
    return module.padding_idx if name == "weight" and isinstance(module, nn.Embedding | nn.EmbeddingBag) else None


def stores_inputs_first(module: nn.Module) -> bool:
    """Return whether the module is a linear layer of transformers that stores its weight as `(in, out)` (`Conv1D`).

    It is recognised by its name, since the library imports nothing but torch.
    """
    return any(
        cls.__name__ == "Conv1D" and cls.__module__ == "transformers.pytorch_utils" for cls in type(module).__mro__
    )


def is_stack_of_experts(module: nn.Module) -> bool:
    """Return whether the module holds the experts of a transformers model as stacks, and tells how they are stored.

    transformers gives these attributes to every such class (`use_experts_implementation`).
    """
    own = vars(module)
    return "is_transposed" in own and "is_concatenated" in own and "has_gate" in own
