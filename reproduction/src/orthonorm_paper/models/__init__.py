"""Networks of the experiments, as a table; a plain network knows nothing of orthogonality."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from orthonorm_paper.exceptions import UserError

from ._alexnet import alexnet as alexnet
from ._inception import inception_cifar as inception_cifar
from ._inception import inception_imagenet as inception_imagenet
from ._mlp import mlp as mlp
from ._mlp import pie_mlp as pie_mlp
from ._preresnet import preresnet34 as preresnet34
from ._preresnet import preresnet_cifar as preresnet_cifar
from ._recurrent import lstm as lstm
from ._recurrent import rnn as rnn
from ._resnet import resnet34 as resnet34
from ._vgg import vgg as vgg
from ._wide_resnet import wide_resnet as wide_resnet

MODELS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "pie-mlp": pie_mlp,
    "vgg": vgg,
    "inception-cifar": inception_cifar,
    "wide-resnet": wide_resnet,
    "preresnet-cifar": preresnet_cifar,
    "alexnet": alexnet,
    "inception-imagenet": inception_imagenet,
    "resnet34": resnet34,
    "preresnet34": preresnet34,
    "rnn": rnn,
    "lstm": lstm,
}


def build_model(
    name: str, arguments: dict[str, Any], *, shape: tuple[int, ...], classes: int, start: str, seed: int
) -> nn.Module:
    """Network of the table, its weights drawn by the named initialization: a function of the arguments.

    Raises:
        UserError: an unknown name or argument.
    """
    if name not in MODELS:
        raise UserError(f"model must be one of {', '.join(MODELS)}; got {name!r}.")
    try:
        return MODELS[name](shape=shape, classes=classes, start=start, seed=seed, **arguments)
    except TypeError as error:
        raise UserError(f"model {name} with {arguments}: {error}") from None
