"""Which tensors of which type of layer become orthogonal, and how: one entry a type.

To add a layer, add one entry to `RULES`: a function from the module to its targets. Everything else (the checks, the
conversion, folding, the diagnostics) works from these.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

__all__ = ["BY_DEFAULT", "RULES", "Target", "find_rule", "known_types"]


@dataclass(frozen=True)
class Target:
    """One tensor of a layer that becomes orthogonal."""

    name: str
    """Path of the tensor from the module: `"weight"`, `"out_proj.weight"`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of `orthogonal_weight_norm` that hold for this tensor whatever the configuration says."""
    blocks: int | None = None
    """Number of equal blocks of rows, unless the configuration names blocks itself."""
    takes_blocks: bool = True
    """Whether the blocks that the configuration names are meant for this tensor."""
    input_weight: bool = False
    """Whether it acts on the inputs of a recurrent layer: taken only where the configuration asks for it."""


Rule = Callable[[nn.Module], list[Target]]


def _weight(_: nn.Module) -> list[Target]:
    return [Target("weight")]


# Note [recurrent weights]
# A gate's recurrent matrix is square (H x H), applied at every step: what keeps a signal over many steps is that each
# gate is orthogonal by itself and whole. Hence uncentred (centring would take the mean direction of the state at each
# step), and one group a gate whatever the group size of the other layers. With `proj_size` P < H the matrix is H x P,
# which has at most P orthonormal rows: a gate then has several groups.

_GATES = {nn.LSTM: 4, nn.LSTMCell: 4, nn.GRU: 3, nn.GRUCell: 3, nn.RNN: 1, nn.RNNCell: 1}


def _recurrent(module: nn.Module) -> list[Target]:
    gates = next(count for kind, count in _GATES.items() if isinstance(module, kind))
    names = [*module._parameters, *getattr(module, "parametrizations", {})]
    return [
        Target(name, blocks=gates, input_weight=True)
        if name.startswith("weight_ih")
        else Target(name, {"center": False, "group_size": None}, blocks=gates)
        for name in names
        if name.startswith(("weight_ih", "weight_hh"))
    ]


def _attention(module: nn.Module) -> list[Target]:
    assert isinstance(module, nn.MultiheadAttention)
    if module._qkv_same_embed_dim:
        projections = [Target("in_proj_weight", blocks=3)]
    else:
        projections = [Target(f"{letter}_proj_weight") for letter in "qkv"]
    return [*projections, Target("out_proj.weight", takes_blocks=False)]


def _transformer(module: nn.Module) -> list[Target]:
    parts = [
        (name, child) for name, child in module.named_children() if isinstance(child, nn.Linear | nn.MultiheadAttention)
    ]
    return [replace(target, name=f"{name}.{target.name}") for name, child in parts for target in _targets(child)]


def _targets(child: nn.Module) -> list[Target]:
    return _attention(child) if isinstance(child, nn.MultiheadAttention) else _weight(child)


def _embedding(module: nn.Module) -> list[Target]:
    assert isinstance(module, nn.Embedding | nn.EmbeddingBag)
    return [Target("weight", {"constant_row": module.padding_idx})]


def _bilinear(module: nn.Module) -> list[Target]:
    raise TypeError(
        f"{type(module).__name__} has a weight of three ways (out, in1, in2), and orthogonal is not defined for it. If "
        "you mean its (out, in1 * in2) matrix, call orthogonal_weight_norm(module) on it; otherwise leave it out of "
        "the filter."
    )


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: _weight,
    nn.Conv1d: _weight,
    nn.Conv2d: _weight,
    nn.Conv3d: _weight,
    nn.ConvTranspose1d: _weight,
    nn.ConvTranspose2d: _weight,
    nn.ConvTranspose3d: _weight,
    nn.RNN: _recurrent,
    nn.LSTM: _recurrent,
    nn.GRU: _recurrent,
    nn.RNNCell: _recurrent,
    nn.LSTMCell: _recurrent,
    nn.GRUCell: _recurrent,
    nn.MultiheadAttention: _attention,
    nn.TransformerEncoderLayer: _transformer,
    nn.TransformerDecoderLayer: _transformer,
    nn.Embedding: _embedding,
    nn.EmbeddingBag: _embedding,
    nn.Bilinear: _bilinear,
}

BY_DEFAULT = (nn.Linear, nn.modules.conv._ConvNd)
"""The types that `orthogonalize_` takes without a filter."""


def find_rule(module: nn.Module) -> Rule | None:
    """Return the entry for a module's type or for the nearest class that it derives from; None if there is none."""
    return next((RULES[cls] for cls in type(module).__mro__ if cls in RULES), None)


def known_types() -> str:
    """Return the names of the types in the table, for messages."""
    return ", ".join(cls.__name__ for cls, rule in RULES.items() if rule is not _bilinear)
