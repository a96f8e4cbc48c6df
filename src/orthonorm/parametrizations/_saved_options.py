"""What a checkpoint remembers of how V is transformed, beside the tensors."""

import warnings
from collections.abc import Mapping
from typing import Any

__all__ = ["note_options", "saved_rows", "warn_of_other_options"]

# Note [options in a checkpoint]
# The keys and shapes of a converted model do not tell the size of its groups, and the same V in other groups is another
# weight. torch keeps, beside the tensors of a `state_dict`, data of each module for itself (its `_metadata`), which
# `torch.save` writes and no key shows: a plain checkpoint has none of ours, and safetensors or a new dict drop it.
# The words are for a warning, the rows for `inspect_file`, which has no model to ask. Only what
# `torch.load(weights_only=True)` reads may be in them.
_NAME = "orthonorm"
_ROWS = "orthonorm_rows"


def note_options(state_dict: dict[str, Any], prefix: str, options: str, rows: dict[str, Any]) -> None:
    """Write a module's options, in words and as what decides its rows, beside its tensors in a `state_dict`."""
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is not None:
        metadata.setdefault(prefix.removesuffix("."), {}).update({_NAME: options, _ROWS: rows})


def saved_rows(metadata: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """Return what `note_options` wrote of the rows of the V of this key; None where it wrote nothing."""
    noted = metadata.get(f"{key.removesuffix('original')}0")
    return noted.get(_ROWS) if isinstance(noted, Mapping) else None


def warn_of_other_options(metadata: dict[str, Any], options: str, key: str) -> None:
    """Warn where the data beside a module's tensors names other options than the module has."""
    saved = metadata.get(_NAME, options)
    if saved != options:
        warnings.warn(
            f"the V loaded for {key} was trained with {saved}, and is mapped here with {options}: another weight. "
            "Convert the model with the options it was trained with, unless V is to be a new start.",
            stacklevel=2,
        )
