"""The command `orthonorm plan`: what sharing the transformation of a real model among ranks would cost."""

import argparse
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import nn

from orthonorm.convert import OrthogonalConfig, orthogonalize_
from orthonorm.diagnostics._files import owners_in_file

__all__ = ["add_to", "converted_model", "plan"]


def add_to(commands: Any) -> None:
    """Add the command to the subparsers of `orthonorm`."""
    parser = commands.add_parser(
        "plan",
        help="compute what dividing the transformation among ranks costs",
        description="Compute what dividing the transformation among ranks costs: the operations of each rank, the "
        "bytes that it sends, and the balance. Nothing is trained, and no process is started.",
    )
    add = parser.add_argument
    add(
        "model",
        help="a model of torchvision such as resnet50, converted by orthogonalize_ with its defaults; or a file of "
        "weights (.pt or .safetensors), every matrix of which counts as converted",
    )
    add("--ranks", type=int, default=8, help="number of ranks (default: %(default)s)")
    add(
        "--group-size",
        type=int,
        help="largest number of rows in a group, 0 for the limit of each layer (default: that of the "
        "file, otherwise 64)",
    )
    add(
        "--setup",
        default="divide",
        help="divide for data parallel training with divide_, shard for fully_shard with shard_ (default: %(default)s)",
    )
    add("--bucket-mib", type=float, default=25.0, help="MiB of weights that are sent together (default: %(default)s)")
    parser.set_defaults(run=plan)


def plan(options: argparse.Namespace) -> str:
    """Return what the command prints."""
    from orthonorm.distributed._plan import plan, plan_weights

    asked = options.group_size
    config = OrthogonalConfig(group_size=64 if asked is None else asked or None)
    if not _is_file(options.model):
        network = converted_model(options.model, config)
        return str(plan(network, options.ranks, setup=options.setup, bucket_mib=options.bucket_mib))
    weights = owners_in_file(options.model, config, remembered=asked is None)
    found = plan_weights(weights, options.ranks, setup=options.setup, bucket_mib=options.bucket_mib)
    names = " to ".join(dict.fromkeys((weights[0][0], weights[-1][0])))
    return f"{found}\ntaken from the file: every V, or if none every matrix, a classifier's too ({names})"


def _is_file(model: str) -> bool:
    return bool(Path(model).suffix) or Path(model).exists()


def converted_model(model: str, config: OrthogonalConfig) -> nn.Module:
    """Return a model of torchvision on the meta device, converted by `orthogonalize_`.

    Args:
        model: a name that `torchvision.models.get_model` knows.
        config: how it is converted.

    Raises:
        FileNotFoundError: if the name is not known.
        ImportError: if torchvision is missing.

    Examples:
        >>> import orthonorm as on
        >>> converted_model("alexnet", on.OrthogonalConfig(group_size=32)).features[0].parametrizations.weight[0].sizes
        (32, 32)
    """
    try:
        from torchvision.models import get_model_builder, list_models
    except ImportError as error:
        raise ImportError(f"the model {model!r} needs torchvision. Install it with pip install torchvision.") from error
    if model not in list_models():
        raise FileNotFoundError(
            f"model must be a file of weights or a model of torchvision; got {model!r}. Pass resnet50, for example."
        )
    builder = get_model_builder(model)
    # Builders of detectors and of segmentation load a pretrained backbone unless they are told not to.
    untrained = {name: None for name in ("weights", "weights_backbone") if name in signature(builder).parameters}
    with torch.device("meta"):
        network = builder(**untrained)
    return orthogonalize_(network, config)
