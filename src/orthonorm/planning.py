"""The command `orthonorm plan`: what sharing the transformation of a real model among ranks would cost."""

import sys
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from .checkpoints import owners_in_file
from .convert import OLMConfig, orthogonalize_

if TYPE_CHECKING:
    from .distributed.groups import GroupedWeight

__all__ = ["plan", "weights_of"]


def plan(model: str, ranks: int = 8, group_size: int = 64, setup: str = "divide", bucket_mib: float = 25.0) -> None:
    """Show what sharing the transformation among ranks costs each: operations, bytes sent, balance. Nothing is run.

    MODEL is a name of torchvision (resnet50), converted as `orthogonalize_` does by default, or a file of weights
    (.pt or .safetensors), of which every matrix is taken. --ranks simulates any number. --setup divide is data
    parallel training with divide_, --setup shard is fully_shard with shard_. --group-size 0 means each layer's limit.
    --bucket-mib is how many MiB of weights one exchange takes, as in divide_ and shard_.
    """
    from .distributed.plan import plan_weights

    try:
        weights = weights_of(model, OLMConfig(group_size=group_size or None))
        print(plan_weights(weights, ranks, setup=setup, bucket_mib=bucket_mib))
        if _is_file(model):
            print(f"taken from the file: every V, or if none every matrix, a classifier's too ({_named(weights)})")
    except (OSError, ValueError, TypeError, ImportError) as error:
        print(f"orthonorm: {error}", file=sys.stderr)
        raise SystemExit(2) from None


def _is_file(model: str) -> bool:
    return bool(Path(model).suffix) or Path(model).exists()


def _named(weights: "list[GroupedWeight]") -> str:
    last = weights[-1].key
    return last if len(weights) == 1 else f"{weights[0].key} to {last}"


def weights_of(model: str, config: OLMConfig) -> "list[GroupedWeight]":
    """Return the orthogonal weights that a model of torchvision, or a file of weights, would have.

    Args:
        model: a name that `torchvision.models.get_model` knows, or a path.
        config: how it is converted.

    Raises:
        FileNotFoundError: if it is neither a known name nor a file.
        ImportError: if it is a name and torchvision is missing.
        ValueError: if the file cannot be read, or holds no matrix.

    Example:
        >>> import orthonorm as on
        >>> [weight.key for weight in weights_of("alexnet", on.OLMConfig())][:2]
        ['features.0.weight', 'features.3.weight']
    """
    from .distributed.members import describe
    from .parametrizations.registration import free_matrix, orthogonal_weights

    if _is_file(model):
        return [describe(key, owner, tensor) for key, owner, tensor in owners_in_file(model, config)]
    try:
        from torchvision.models import get_model_builder, list_models
    except ImportError as error:
        raise ImportError(f"the model {model!r} needs torchvision: pip install torchvision") from error
    if model not in list_models():
        raise FileNotFoundError(f"{model!r} is no file and no model of torchvision, as resnet50 or vgg16_bn are.")
    builder = get_model_builder(model)
    # Builders of detectors and of segmentation load a pretrained backbone unless they are told not to.
    untrained = {name: None for name in ("weights", "weights_backbone") if name in signature(builder).parameters}
    with torch.device("meta"):
        network = builder(**untrained)
    orthogonalize_(network, config)
    return [describe(key, owner, free_matrix(module, name)) for key, module, name, owner in orthogonal_weights(network)]
