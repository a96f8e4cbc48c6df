"""What a module does with its tensor that an orthogonal one would not bear, or leaves open."""

from torch import Tensor, nn

__all__ = ["check_table", "refuse_rewritten", "refuse_unsaid_stack"]


def check_table(module: nn.Module, label: str) -> None:
    """Raise a ValueError for an embedding that does with its table what an orthogonal one does not bear."""
    if not isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return
    if module.sparse:
        raise ValueError(
            f"{label}: {type(module).__name__} has sparse=True, but an orthogonal table depends on every row of V, so "
            "its gradient is dense. Set sparse=False, or leave it as it is: orthogonalize_ has filter_fn."
        )
    if module.max_norm is not None:
        raise ValueError(
            f"{label}: {type(module).__name__} has max_norm={module.max_norm}, which writes into the table at each "
            "forward; an orthogonal table has rows of norm 1 (or the scale). Set max_norm=None, or leave it as it is: "
            "orthogonalize_ has filter_fn."
        )


# What torch's older functions, which rewrite a weight in a hook before each forward, keep beside it, and how each ends.
_REWRITTEN = {
    "_g": ("weight_norm", "torch.nn.utils.remove_weight_norm(module, {name!r})"),
    "_u": ("spectral_norm", "torch.nn.utils.remove_spectral_norm(module, {name!r})"),
    "_mask": ("pruning", "torch.nn.utils.prune.remove(module, {name!r})"),
}


def refuse_rewritten(module: nn.Module, name: str, label: str) -> None:
    """Raise a ValueError for a tensor that a hook of torch's makes from others: it is no parameter any more."""
    there = {**module._parameters, **module._buffers}
    for ending, (function, cure) in _REWRITTEN.items():
        if name + ending in there:
            raise ValueError(
                f"{label} is rewritten before each forward by torch's {function}, so it is no parameter of this "
                f"{type(module).__name__}. Remove that first ({cure.format(name=name)}), or leave the layer out."
            )


def refuse_unsaid_stack(module: nn.Module, name: str, weight: Tensor, stacked: bool, label: str) -> None:
    """Raise a ValueError for a tensor of three dimensions that is no kernel, unless it is said to be a stack."""
    lazy = isinstance(weight, nn.parameter.UninitializedParameter)
    flattened = name == "weight" and isinstance(module, nn.modules.conv._ConvNd | nn.Bilinear)
    if not (stacked or lazy or flattened) and weight.ndim == 3:
        E, n, d = weight.shape
        raise ValueError(
            f"{label} has the shape {(E, n, d)} and is no convolution's kernel, so its rows may be those of {E} "
            f"matrices or of one. Pass stacked=True for {E} matrices of {n} rows, each orthogonal by itself; for one "
            f"matrix ({E}, {n * d}) keep the parameter in two dimensions."
        )
