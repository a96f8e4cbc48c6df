"""Which tensors of which type of layer become orthogonal, and how: one entry a type.

To add a layer, add one entry to `RULES`: a function from the module to its targets. Everything else (the default
choice, the checks, the conversion, folding, the diagnostics) works from these.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from orthonorm.parametrizations._row_layout import is_stack_of_experts, stores_inputs_first

__all__ = ["RULES", "Target", "find_rule", "is_taken_by_default", "known_types", "targets_of", "why_type_is_left"]


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
    stacked: bool = False
    """Whether it is a stack of matrices, each with blocks of its own."""
    input_weight: bool = False
    """Whether it acts on the inputs of a recurrent layer: taken only where the configuration asks for it."""
    blocks_are: str = ""
    """What the blocks are, in words."""


Rule = Callable[[nn.Module], list[Target]]


def _weight(_: nn.Module) -> list[Target]:
    return [Target("weight")]


# Note [recurrent weights]
# A gate's recurrent matrix is square (H x H), applied at every step: what keeps a signal over many steps is that each
# gate is orthogonal by itself and whole. Hence uncentred (centring would take the mean direction of the state at each
# step), and one group a gate whatever the group size of the other layers. With `proj_size` P < H the matrix is H x P,
# which has at most P orthonormal rows: a gate then has several groups.

_GATES = {nn.RNN: 1, nn.LSTM: 4, nn.GRU: 3, nn.RNNCell: 1, nn.LSTMCell: 4, nn.GRUCell: 3}


def _recurrent(module: nn.Module) -> list[Target]:
    gates = next(count for kind, count in _GATES.items() if isinstance(module, kind))
    names = [*module._parameters, *getattr(module, "parametrizations", {})]
    return [
        Target(name, blocks=gates, input_weight=True, blocks_are="each gate by itself")
        if name.startswith("weight_ih")
        else Target(name, {"center": False, "group_size": None}, blocks=gates, blocks_are="each gate by itself")
        for name in names
        if name.startswith(("weight_ih", "weight_hh"))
    ]


def _attention(module: nn.Module) -> list[Target]:
    assert isinstance(module, nn.MultiheadAttention)
    if module._qkv_same_embed_dim:
        projections = [Target("in_proj_weight", blocks=3, blocks_are="q, k and v, each by itself")]
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


def _experts(module: Any) -> list[Target]:
    if module.has_gate and not module.is_concatenated:
        raise TypeError(
            f"{type(module).__name__} stores the rows of gate and up in turns (is_concatenated=False), and blocks are "
            "neighbouring rows. Call orthogonal_weight_norm(module, 'down_proj', stacked=True), and the same with "
            "'gate_up_proj' if gate and up may share groups."
        )
    weights = [key for key, value in module._parameters.items() if value is not None and value.ndim == 3]
    return [
        Target(name, blocks=2, takes_blocks=False, stacked=True, blocks_are="gate and up of each expert by itself")
        if name == "gate_up_proj"
        else Target(name, blocks=1, takes_blocks=False, stacked=True, blocks_are="each expert by itself")
        for name in [*weights, *getattr(module, "parametrizations", {})]
    ]


def _bilinear(module: nn.Module) -> list[Target]:
    raise TypeError(
        f"{type(module).__name__} has a weight of three ways (out, in1, in2), and orthogonal is not defined for it. If "
        "you mean its (out, in1 * in2) matrix, call orthogonal_weight_norm(module) on it; otherwise leave it out of "
        "the filter."
    )


RULES: dict[type[nn.Module], Rule] = {
    **dict.fromkeys((nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d), _weight),
    **dict.fromkeys((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), _weight),
    **dict.fromkeys(_GATES, _recurrent),
    nn.MultiheadAttention: _attention,
    **dict.fromkeys((nn.TransformerEncoderLayer, nn.TransformerDecoderLayer), _transformer),
    **dict.fromkeys((nn.Embedding, nn.EmbeddingBag), _weight),
    nn.Bilinear: _bilinear,
}

# Types that have an entry above and are taken only where a filter chooses them, and why.
_LEFT: dict[tuple[type[nn.Module], ...], str] = {
    (nn.RNNBase, nn.RNNCellBase): "recurrent: taken if filter_fn chooses it",
    (nn.Embedding, nn.EmbeddingBag): "embedding: taken if filter_fn chooses it",
    (nn.Bilinear,): "bilinear: no matrix",
    (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer): "converted layer by layer",
}

# Names under which attention modules keep q, k and v in one layer (timm, GPT-2), three times as wide as its inputs.
_FUSED = ("qkv", "in_proj", "c_attn")


def is_taken_by_default(module: nn.Module) -> bool:
    """Return whether a layer's type is one that `orthogonalize_` takes without a filter."""
    return find_rule(module) not in (None, _experts) and not any(isinstance(module, kinds) for kinds in _LEFT)


def why_type_is_left(module: nn.Module) -> str:
    """Return why a layer of a type that is not taken by default is left as it is."""
    known = (reason for kinds, reason in _LEFT.items() if isinstance(module, kinds))
    if is_stack_of_experts(module):
        return "stack of experts: taken if filter_fn chooses it"
    return next(known, "no layer type that the conversion knows")


def find_rule(module: nn.Module) -> Rule | None:
    """Return the entry for a module's type or for the nearest class that it derives from; None if there is none."""
    rule = next((RULES[cls] for cls in type(module).__mro__ if cls in RULES), None)
    if rule is None and is_stack_of_experts(module):
        return _experts
    return _weight if rule is None and stores_inputs_first(module) else rule


def targets_of(module: nn.Module, fqn: str) -> list[Target] | None:
    """Return the tensors of a module that become orthogonal where it is chosen; None for a type without a rule."""
    rule = find_rule(module)
    if rule is None:
        return None
    if rule is _weight and fqn.rpartition(".")[2] in _FUSED and _is_thrice_as_wide(module):
        return [Target("weight", blocks=3, blocks_are="q, k and v by the layer's name, each by itself")]
    return rule(module)


def _is_thrice_as_wide(module: nn.Module) -> bool:
    weight = module._parameters.get("weight")
    if weight is None or isinstance(weight, nn.parameter.UninitializedParameter) or weight.ndim != 2:
        return False
    n, d = reversed(weight.shape) if stores_inputs_first(module) else weight.shape
    return n == 3 * d


def known_types() -> str:
    """Return the names of the types in the table, for messages."""
    names = [cls.__name__ for cls, rule in RULES.items() if rule is not _bilinear]
    return ", ".join([*names, "Conv1D and stacks of experts of transformers"])
