"""Which layers of each network a method replaces, and by what: data, with the paper's labels.

Note [bias]: an orthogonal convolution of the authors carries no bias, where a plain or weight-normalised one does. Only
the VGG-style network has such convolutions; conversion in the library never removes one, so it is done here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from torch import nn
from torch.nn.utils import parametrizations

import orthonorm as on
from orthonorm_paper.exceptions import UserError


@dataclass(frozen=True)
class Layers:
    """A set of layers: in words, by type, kernel (None for any), and whether the last linear layer belongs to it."""

    words: str
    types: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv2d)
    kernel: tuple[int, int] | None = None
    classifier: bool = False

    def names(self, network: nn.Module) -> list[str]:
        """Names of the layers in a network, in its order."""
        every = [(name, m) for name, m in network.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
        last = [name for name, layer in every if isinstance(layer, nn.Linear)][-1:]
        left_out = [] if self.classifier else last
        return [name for name, layer in every if name not in left_out and self._has(layer)]

    def _has(self, layer: nn.Module) -> bool:
        return isinstance(layer, self.types) and self.kernel in (None, getattr(layer, "kernel_size", None))


LAYERS: dict[str, Layers] = {
    "hidden": Layers("every layer but the classifier"),
    "all": Layers("every layer, the classifier too", classifier=True),
    "convolutions": Layers("every convolution", (nn.Conv2d,)),
    "3x3": Layers("every 3 x 3 convolution, 1 x 1 shortcuts stay plain", (nn.Conv2d,), kernel=(3, 3)),
}


@dataclass(frozen=True)
class Replaced:
    """What a method replaces in one network: a set of ``LAYERS``, or the first few of it, in groups of so many rows."""

    layers: str
    first: int | None = None
    group_size: int = 64


# By the name of the network in `models`. "3x3" is how the authors ran wide-resnet, whatever the text says (errata 9).
# Of preresnet-cifar the paper has the plain one only: here it is treated as wide-resnet.
REPLACED: dict[str, Replaced] = {
    # The authors' group for the whole layer, cut to each layer's limit.
    "mlp": Replaced("hidden", group_size=256),
    "pie-mlp": Replaced("all"),
    "vgg": Replaced("convolutions"),
    "inception-cifar": Replaced("convolutions"),
    "wide-resnet": Replaced("3x3"),
    "preresnet-cifar": Replaced("3x3"),
    "alexnet": Replaced("convolutions"),
    "inception-imagenet": Replaced("convolutions"),
    "resnet34": Replaced("convolutions", first=1),
    "preresnet34": Replaced("convolutions", first=1),
}


def replaced_layers(
    model: str, network: nn.Module, *, first: int | None = None, layers: str | None = None
) -> tuple[str, ...]:
    """Names of the layers that a method replaces, in the order of the network.

    Args:
        model: name of the network in ``models``.
        network: the plain network.
        first: only so many, from the input; None for what the paper replaces.
        layers: entry of ``LAYERS`` to take instead of the paper's.

    Raises:
        UserError: an unknown name, or fewer layers than ``first``.

    Examples:
        >>> from orthonorm_paper.models import build_model
        >>> vgg = build_model("vgg", {"width": 0.1}, shape=(3, 32, 32), classes=10, start="paper", seed=0)
        >>> replaced_layers("vgg", vgg, first=2)
        ('0', '2')
    """
    if model not in REPLACED:
        raise UserError(f"model must be one of {', '.join(REPLACED)}; got {model!r}.")
    paper = REPLACED[model]
    if layers is not None and layers not in LAYERS:
        raise UserError(f"layers must be one of {', '.join(LAYERS)}; got {layers!r}.")
    chosen = LAYERS[layers or paper.layers]
    names = chosen.names(network)
    wanted = paper.first if first is None and layers is None else first
    if wanted is not None and not 1 <= wanted <= len(names):
        raise UserError(f"{model} has {len(names)} layers to replace ({chosen.words}); got first {wanted}.")
    return tuple(names[:wanted])


Initial = Literal["orthonormal", "weight"]
Scale = Literal["learned", "row_norms"] | float | None


@dataclass(frozen=True)
class Choice:
    """What a run may choose of a replacement.

    Attributes:
        group_size: rows of a group at most.
        center: subtract each row's mean first.
        layers: entry of ``LAYERS``.
        initial: what V starts as, see ``OrthogonalConfig``.
        scale: "learned" for a learned factor per row that starts at 1, a number for a fixed one, None for no factor.
        keep_norm: rescale V to its first norm after each step.
    """

    group_size: int
    center: bool = True
    layers: str | None = None
    initial: Initial = "weight"
    scale: Scale = None
    keep_norm: bool = False


Convert = Callable[[nn.Module, Collection[str], Choice], None]


@dataclass(frozen=True)
class Replacement:
    """One label of the paper: which layers, what they become, whether convolutions among them keep their bias.

    ``first`` is how many layers from the input, None for all that the paper replaces in a network; ``arguments`` are
    the fields of ``Choice`` that a run may give, and ``defaults`` what they are where it gives none.
    """

    label: str
    words: str
    convert: Convert
    first: int | None = None
    bias: bool = True
    arguments: tuple[str, ...] = ("group_size", "center", "layers")
    defaults: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def apply_(self, network: nn.Module, model: str, arguments: Mapping[str, object] | None = None) -> nn.Module:
        """Replace the layers of a plain network, in place.

        Args:
            network: the plain network.
            model: its name in ``models``.
            arguments: fields of ``Choice``; the group size left out is that of ``REPLACED``.

        Returns:
            The network.

        Raises:
            UserError: as ``replaced_layers``, or an argument that the method has not or of a wrong type.
        """
        choice = self.choice(model, arguments or {})
        names = replaced_layers(model, network, first=self.first, layers=choice.layers)
        if not self.bias:
            drop_biases_(network, names)
        self.convert(network, names, choice)
        return network

    def choice(self, model: str, arguments: Mapping[str, object]) -> Choice:
        """The arguments checked, with the group size of the network's entry in ``REPLACED`` where none is given."""
        if model not in REPLACED:
            raise UserError(f"model must be one of {', '.join(REPLACED)}; got {model!r}.")
        for name, value in arguments.items():
            if name not in self.arguments:
                takes = ", ".join(self.arguments) or "no arguments"
                raise UserError(f"method {self.label} takes {takes}; got {name} = {value!r}.")
            if not _VALID[name](value):
                raise UserError(f"{name} of a method must be {_EXPECTED[name]}; got {value!r}.")
        return Choice(**{"group_size": REPLACED[model].group_size, **self.defaults, **arguments})  # pyright: ignore[reportArgumentType]


def drop_biases_(network: nn.Module, names: Collection[str]) -> None:
    """Remove the biases of the named convolutions; see Note [bias]."""
    for name in names:
        layer = network.get_submodule(name)
        if isinstance(layer, nn.Conv2d):
            layer.bias = None


_VALID: dict[str, Callable[[object], bool]] = {
    "group_size": lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 1,
    "center": lambda value: isinstance(value, bool),
    "layers": lambda value: value in LAYERS,
    "initial": lambda value: value in get_args(Initial),
    "scale": lambda value: value == "learned" or (isinstance(value, float) and value > 0),
    "keep_norm": lambda value: isinstance(value, bool),
}
_EXPECTED = {
    "group_size": "a whole number of rows >= 1",
    "center": "true or false",
    "layers": f"one of {', '.join(LAYERS)}",
    "initial": f"one of {', '.join(get_args(Initial))}",
    "scale": "learned, or a positive number with a point",
    "keep_norm": "true or false",
}


def _orthogonal(
    network: nn.Module,
    names: Collection[str],
    choice: Choice,
    *,
    grouping: Literal["balanced", "tail"] = "balanced",
) -> None:
    config = on.OrthogonalConfig(
        group_size=choice.group_size,
        center=choice.center,
        grouping=grouping,
        scale=choice.scale,
        initial=choice.initial,
    )
    on.orthogonalize_(network, config, filter_fn=lambda _, fqn: fqn in names)


_olm = partial(_orthogonal, grouping="tail")


def _weight_norm(
    network: nn.Module,
    names: Collection[str],
    choice: Choice,  # noqa: ARG001
    *,
    unit: bool = True,
) -> None:
    for name in names:
        layer = network.get_submodule(name)
        parametrizations.weight_norm(layer)
        if unit:
            holder: Any = layer
            nn.init.ones_(holder.parametrizations.weight.original0)


def _unit_rows(network: nn.Module, names: Collection[str], choice: Choice) -> None:
    # Groups of one row: orthogonalisation divides each by its norm.
    _orthogonal(network, names, dataclasses.replace(choice, group_size=1, center=False))


# Note [g]: the authors' g starts at 1 (errata 11). Torch's weight normalization and the library's "row_norms" start it
# at the row norms of the initialization, which is another method: it stands beside under a name of its own.
_ONE_GROUP = 4096  # no layer has more rows, and each group is cut to its layer's limit
_CHOSEN = ("group_size", "center", "layers", "initial", "scale", "keep_norm")
_ENTRIES = (
    Replacement("WN", "weight normalization, g starts at 1", _weight_norm, arguments=("layers",)),
    Replacement("WN-row-norms", "weight normalization as torch's, g starts at the row norms",
                partial(_weight_norm, unit=False), arguments=("layers",)),
    Replacement("WN-unit", "rows of norm 1, not centred, without scale", _unit_rows, arguments=("layers",)),
    Replacement("OLM", "orthogonal, groups filled to the limit", _olm, bias=False),
    Replacement("OLM-scale", "orthogonal, with a learned scale that starts at 1", _olm, bias=False,
                defaults={"scale": "learned"}),
    Replacement("OLM-scale-row-norms", "orthogonal, with a learned scale that starts at the row norms", _olm,
                bias=False, defaults={"scale": "row_norms"}),
    Replacement("OLM-L1", "orthogonal in the first layer", _olm, first=1, bias=False),
    Replacement("OLM-L2", "orthogonal in the first 2 layers", _olm, first=2, bias=False),
    Replacement("OLM-L4", "orthogonal in the first 4 layers", _olm, first=4, bias=False),
    Replacement("OLM-balanced", "orthogonal, groups of equal size", _orthogonal, bias=False),
    Replacement("OLM-uncentred", "orthogonal, rows not centred", _orthogonal, bias=False,
                arguments=("group_size", "layers"), defaults={"center": False}),
    Replacement("orthonorm", "orthogonal as the library's defaults have it: not centred, V starts orthonormal",
                _orthogonal, arguments=_CHOSEN,
                defaults={"center": False, "initial": "orthonormal", "group_size": _ONE_GROUP}),
)  # fmt: skip

REPLACEMENTS: dict[str, Replacement] = {entry.label: entry for entry in _ENTRIES}
