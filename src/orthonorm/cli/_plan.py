"""The command `orthonorm plan`: what sharing the transformation of a real model among ranks would cost."""

import argparse
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from orthonorm.convert import OrthogonalConfig, orthogonalize_
from orthonorm.diagnostics._files import owners_in_file

if TYPE_CHECKING:
    from orthonorm.distributed._row_groups import GroupedWeight

__all__ = ["add_to", "plan", "weights_of"]


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
    from orthonorm.distributed._plan import plan_weights

    asked = options.group_size
    config = OrthogonalConfig(group_size=64 if asked is None else asked or None)
    weights = weights_of(options.model, config, remembered=asked is None)
    lines = [str(plan_weights(weights, options.ranks, setup=options.setup, bucket_mib=options.bucket_mib))]
    if _is_file(options.model):
        lines.append(f"taken from the file: every V, or if none every matrix, a classifier's too ({_named(weights)})")
    return "\n".join(lines)


def _is_file(model: str) -> bool:
    return bool(Path(model).suffix) or Path(model).exists()


def _named(weights: "list[GroupedWeight]") -> str:
    last = weights[-1].key
    return last if len(weights) == 1 else f"{weights[0].key} to {last}"


def weights_of(model: str, config: OrthogonalConfig, *, remembered: bool = False) -> "list[GroupedWeight]":
    """Return the orthogonal weights that a model of torchvision, or a file of weights, would have.

    Args:
        model: a name that `torchvision.models.get_model` knows, or a path.
        config: how it is converted.
        remembered: take the groups that a file remembers, where it does, and not those of `config`.

    Raises:
        FileNotFoundError: if it is neither a known name nor a file.
        ImportError: if it is a name and torchvision is missing.
        ValueError: if the file cannot be read, or holds no matrix.

    Examples:
        >>> import orthonorm as on
        >>> [weight.key for weight in weights_of("alexnet", on.OrthogonalConfig())][:2]
        ['features.0.weight', 'features.3.weight']
    """
    from orthonorm.distributed._shared_weights import describe
    from orthonorm.parametrizations._registration import free_matrix, orthogonal_weights

    if _is_file(model):
        return [
            describe(key, owner, tensor) for key, owner, tensor in owners_in_file(model, config, remembered=remembered)
        ]
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
    orthogonalize_(network, config)
    return [describe(key, owner, free_matrix(module, name)) for key, module, name, owner in orthogonal_weights(network)]
