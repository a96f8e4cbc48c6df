"""The paper's methods, in one table: label, initialization, conversion of the network, optimizer.

Note [labels]: `EI+QR` is the Euclidean metric and `CI+QR` the canonical one, as the authors' modules have them. It is
the paper's appendix that exchanged the formulas (errata 4). Nothing outside this package knows these labels. Those that
end in "-released" are the same methods as the authors' code does them (errata 10): `released.py`.

Note [weight decay]: the authors apply weight decay to every parameter, those V of WN and OLM too, and so do the
experiments. It changes no function, only the size of those matrices and with it the effective learning rate; the
library's own ``param_groups`` leaves them out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

import orthonorm as on
from orthonorm_paper.exceptions import UserError

from .neighbours import add_penalty_, torch_orthogonal_layers_
from .recurrent import orthogonalize_recurrent_, recurrent_error, recurrent_unchanged, torch_orthogonal_
from .released import Rule, released_sgd, start_first_orthonormal
from .replaced_layers import LAYERS, REPLACED, REPLACEMENTS, Replacement
from .variance_transformation import register_variance_

# The authors' group for the whole layer of an MLP, cut to each layer's limit.
GROUP_SIZE = REPLACED["mlp"].group_size

Metric = Literal["euclidean", "canonical"]
Retraction = Literal["qr", "polar", "cayley"]


@dataclass(frozen=True)
class OptimizerSettings:
    """What a run says of its optimizer; fields as in ``Run``."""

    kind: str
    lr: float
    momentum: float = 0.0
    nesterov: bool = False
    weight_decay: float = 0.0


Convert = Callable[[nn.Module], nn.Module]
MakeOptimizer = Callable[[nn.Module, OptimizerSettings], torch.optim.Optimizer]
Measure = Callable[[nn.Module], float]


@dataclass(frozen=True)
class Method:
    """How a plain network is made orthogonal, kept so, and measured.

    Attributes:
        label: name in the paper's figures, or ours where the paper has none.
        description: one line for tables.
        start: entry of ``models._initialization.STARTS``.
        convert: plain network to the network trained, in place; an MLP where ``replacement`` is given.
        make_optimizer: optimizer of the converted network.
        error: largest ``|W W^T - I|`` over the hidden weights; for plain networks how far from
            orthonormal they are.
        replacement: which layers of which network it replaces; None for what treats every network alike.
    """

    label: str
    description: str
    start: str
    convert: Convert
    make_optimizer: MakeOptimizer
    error: Measure
    replacement: Replacement | None = None


def method(label: str, model: str = "mlp", arguments: Mapping[str, object] | None = None) -> Method:
    """Entry of ``METHODS`` as it is for a network: what a run's ``method`` and ``method_args`` mean on its ``model``.

    Args:
        label: name in the table.
        model: name of the network in ``models``.
        arguments: of the method, see ``replaced_layers.Choice``.

    Raises:
        UserError: an unknown label (the known ones are listed), or arguments that it does not take.

    Examples:
        >>> method("OLM", "vgg", {"group_size": 32}).description
        'orthogonal, groups filled to the limit'
    """
    if label not in METHODS:
        raise UserError(f"method must be one of {', '.join(METHODS)}; got {label!r}.")
    entry, given = METHODS[label], dict(arguments or {})
    if entry.replacement is None:
        if given:
            raise UserError(f"method {label} takes no arguments; got {given}.")
        return entry
    choice = entry.replacement.choice(model, given)
    make = _norm_kept if choice.keep_norm else entry.make_optimizer
    return dataclasses.replace(entry, convert=_conversion(entry.replacement, model, given), make_optimizer=make)


def hidden_layers(model: nn.Module) -> list[nn.Linear | nn.Conv2d]:
    """Linear and convolutional layers, without the last Linear (the classifier)."""
    return [cast(nn.Linear | nn.Conv2d, model.get_submodule(name)) for name in LAYERS["hidden"].names(model)]


def _unchanged(model: nn.Module) -> nn.Module:
    return model


def _conversion(replacement: Replacement, model: str, arguments: Mapping[str, object]) -> Convert:
    return lambda network: replacement.apply_(network, model, arguments)


def _olm_var(model: nn.Module) -> nn.Module:
    for layer in hidden_layers(model):
        register_variance_(layer, "weight", GROUP_SIZE)
    return model


@torch.no_grad()
def _start_orthonormal(model: nn.Module) -> nn.Module:
    for layer in hidden_layers(model):
        weight = layer.weight.flatten(1)
        if weight.shape[0] > weight.shape[1]:
            raise UserError(
                "a Riemannian method keeps all rows of a layer orthonormal, and "
                f"{weight.shape[0]} rows in {weight.shape[1]} dimensions cannot be"
            )
        # The orthonormal matrix nearest to the initial weight.
        w = on.functional.orthonormalize(weight.double(), center=False)
        layer.weight.copy_(w.reshape(layer.weight.shape))
    return model


def _euclidean(model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    return _step([{"params": list(model.parameters()), "weight_decay": settings.weight_decay}], settings)


def _proxy(model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    # Note [weight decay]
    groups = on.param_groups(model)
    return _step([group | {"weight_decay": settings.weight_decay} for group in groups], settings)


def _norm_kept(model: nn.Module, settings: OptimizerSettings) -> torch.optim.Optimizer:
    optimizer = _proxy(model, settings)
    on.register_norm_keeping(optimizer, model)
    return optimizer


def _penalised(model: nn.Module, settings: OptimizerSettings, *, strength: float) -> torch.optim.Optimizer:
    add_penalty_(hidden_layers(model), strength)
    return _euclidean(model, settings)


def _released(model: nn.Module, settings: OptimizerSettings, *, rule: Rule) -> torch.optim.Optimizer:
    if (settings.kind, settings.momentum, settings.weight_decay) != ("sgd", 0.0, 0.0):
        raise UserError(f"the released methods run with plain sgd, without momentum and weight decay; got {settings}.")
    return released_sgd(model, hidden_layers(model), rule, settings.lr)


def _step(groups: list[dict[str, Any]], settings: OptimizerSettings) -> torch.optim.Optimizer:
    if settings.kind == "adam":
        return torch.optim.Adam(groups, lr=settings.lr)
    return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, nesterov=settings.nesterov)


def _riemannian(
    model: nn.Module, settings: OptimizerSettings, *, metric: Metric | None, retraction: Retraction
) -> torch.optim.Optimizer:
    if settings.kind != "sgd":
        raise UserError(f"the Riemannian methods run with sgd; got optimizer {settings.kind!r}.")
    on_manifold = [layer.weight for layer in hidden_layers(model)]
    taken = {id(weight) for weight in on_manifold}
    others = [p for p in model.parameters() if id(p) not in taken]
    groups = [
        {"params": on_manifold, "manifold": True},
        {"params": others, "manifold": False, "weight_decay": settings.weight_decay},
    ]
    return on.StiefelSGD(
        groups,
        lr=settings.lr,
        momentum=settings.momentum,
        nesterov=settings.nesterov,
        metric=metric,
        retraction=retraction,
    )


def _error_of_model(model: nn.Module) -> float:
    return max(on.orthogonality_error(model).values())


@torch.no_grad()
def _error_of_rows(model: nn.Module, *, centred: bool) -> float:
    def error(weight: Tensor) -> float:
        rows = weight.flatten(1).double()
        limit = min(GROUP_SIZE, rows.shape[1] - 1) if centred else len(rows)
        return max(
            float((group @ group.mT - torch.eye(len(group), dtype=group.dtype, device=group.device))
                  .abs().max())
            for group in rows.split(limit)
        )  # fmt: skip

    return max(error(layer.weight) for layer in hidden_layers(model))


def _plain(label: str, start: str, words: str) -> Method:
    error = partial(_error_of_rows, centred=False)
    return Method(label, f"no constraint, {words}", start, _unchanged, _euclidean, error)


def _stiefel(label: str, words: str, metric: Metric | None, retraction: Retraction) -> Method:
    make = partial(_riemannian, metric=metric, retraction=retraction)
    return Method(label, words, "paper", _start_orthonormal, make, partial(_error_of_rows, centred=False))


def _as_released(rule: Rule) -> Method:
    def convert(model: nn.Module) -> nn.Module:
        if rule == "CayT":
            start_first_orthonormal(hidden_layers(model))
        return model

    words = f"{rule} as the authors released it: gradients never set to zero, constant learning rate"
    make = partial(_released, rule=rule)
    return Method(f"{rule}-released", words, "paper", convert, make, partial(_error_of_rows, centred=False))


def _penalty(strength: float) -> Method:
    words = f"free weights with an orthogonal initialization and the penalty {strength:g} |W W^T - I|^2"
    make = partial(_penalised, strength=strength)
    error = partial(_error_of_rows, centred=False)
    return Method(f"penalty-{strength:g}", words, "orthogonal", _unchanged, make, error)


def _replacing(entry: Replacement) -> Method:
    free = entry.label.startswith("WN") and entry.label != "WN-unit"
    error = partial(_error_of_rows, centred=False) if free else _error_of_model
    make = _euclidean if free else _proxy
    return Method(entry.label, entry.words, "paper", _conversion(entry, "mlp", {}), make, error, entry)


def _recurrent(
    label: str, words: str, convert: Convert, start: str = "orthogonal", make_optimizer: MakeOptimizer = _proxy
) -> Method:
    return Method(label, words, start, convert, make_optimizer, _error_of_model)


_ENTRIES = (
    _plain("plain", "paper", "initialization uniform in +-1/sqrt(d)"),
    _plain("plain-he", "he", "He initialization"),
    _plain("plain-orthogonal", "orthogonal", "orthogonal initialization with gain sqrt(2)"),
    _stiefel("EI+QR", "gradient G - (W W^T G + W G^T W)/2, QR retraction", "euclidean", "qr"),
    _stiefel("CI+QR", "gradient G - W G^T W, QR retraction", "canonical", "qr"),
    _stiefel("CayT", "Cayley transform", "canonical", "cayley"),
    _stiefel("QR", "plain step, then Q of its QR decomposition", None, "qr"),
    *map(_as_released, ("EI+QR", "CI+QR", "CayT", "QR")),
    _penalty(0.01),
    _penalty(0.1),
    Method(
        "torch-orthogonal",
        "torch.nn.utils.parametrizations.orthogonal",
        "paper",
        lambda model: torch_orthogonal_layers_(model, hidden_layers(model)),
        _euclidean,
        partial(_error_of_rows, centred=False),
    ),
    Method("OLM_var", "P_var = Lambda^{-1/2} D^T, groups as OLM's", "paper", _olm_var, _euclidean,
           partial(_error_of_rows, centred=True)),
    *map(_replacing, REPLACEMENTS.values()),
    Method("recurrent-plain", "torch's initialization", "paper", recurrent_unchanged, _euclidean, recurrent_error),
    Method(
        "recurrent-start", "orthogonal initialization", "orthogonal", recurrent_unchanged, _euclidean, recurrent_error
    ),
    Method("recurrent-torch", "torch's orthogonal", "orthogonal", torch_orthogonal_, _euclidean, recurrent_error),
    _recurrent("recurrent-OLM", "OLM, one group a gate, not centred", orthogonalize_recurrent_),
    _recurrent("recurrent-OLM-scale", "the same with a learned scale",
               partial(orthogonalize_recurrent_, scale="row_norms")),
    _recurrent("recurrent-orthonorm", "the library's defaults on torch's initialization: V starts well conditioned",
               partial(orthogonalize_recurrent_, initial="orthonormal"), start="paper"),
    _recurrent("recurrent-orthonorm-weight", "the same, but V starts as the weight",
               orthogonalize_recurrent_, start="paper"),
    _recurrent("recurrent-orthonorm-kept", "the same as recurrent-orthonorm, but V keeps its norm",
               partial(orthogonalize_recurrent_, initial="orthonormal"), start="paper", make_optimizer=_norm_kept),
)  # fmt: skip

METHODS: dict[str, Method] = {entry.label: entry for entry in _ENTRIES}
