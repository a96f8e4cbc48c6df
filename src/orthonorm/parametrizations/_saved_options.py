"""What a printed layer and a checkpoint say of how V is transformed, beside the tensors."""

import warnings
from collections import Counter
from collections.abc import Mapping
from typing import Any

from orthonorm.functional._groups import runs_of_equal_size

__all__ = [
    "check_saved_options",
    "groups_in_words",
    "note_options",
    "options_in_words",
    "saved_rows",
    "sizes_in_words",
]

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


def check_saved_options(metadata: Mapping[str, Any], options: str, key: str, errors: list[str]) -> None:
    """Warn where the data beside a module's tensors names other options than the module has.

    Data that names none was written by another parametrization, as torch's own `orthogonal`, whose unconstrained
    parameter has the key of V: that is an error. Files without such data, as safetensors, cannot be told apart.
    """
    saved = metadata.get(_NAME, options)
    if "version" in metadata and _NAME not in metadata:
        errors.append(
            f"{key} was saved under another parametrization, whose unconstrained parameter is not V. In the model that "
            "saved it call torch.nn.utils.parametrize.remove_parametrizations, and load that model's weights."
        )
    if saved != options:
        warnings.warn(
            f"the V loaded for {key} was trained with {saved}, but this model has {options}, which gives another "
            "weight. Convert the model with the options that V was trained with, or ignore this to use V as initial "
            "value.",
            stacklevel=2,
        )


def sizes_in_words(sizes: tuple[int, ...], part: str = "group", line: str = "row") -> str:
    """Return how many groups there are of each size.

    Examples:
        >>> sizes_in_words((4, 4, 3))
        '2 groups of 4 rows and 1 group of 3 rows'
    """
    counts = Counter(sizes).items()
    words = [f"{count} {part}{'s' * (count > 1)} of {size} {line}{'s' * (size > 1)}" for size, count in counts]
    return " and ".join(words) or f"no {line}s"


def groups_in_words(sizes: tuple[int, ...], columns: int, groups: int, stacked: bool) -> str:
    """Return the groups in words: "2 groups of 32 rows", "64 orthonormal columns".

    Args:
        sizes: the rows of each group of one matrix.
        columns: how many blocks of one matrix have orthonormal columns; 0 for rows.
        groups: how many matrices there are: of a convolution's own groups, or of a stack.
        stacked: which of the two.
    """
    if columns:
        count = columns if stacked else groups * columns
        text = f"{sizes[0]} orthonormal columns" + (f" in each of {count} blocks" if count > 1 else "")
        return f"{text} in each of {groups} matrices" if stacked else text
    text = sizes_in_words(sizes)
    if stacked:
        return f"{text} in each of {groups} matrices"
    return text if groups == 1 else f"{text} in each of {groups} convolution groups"


def options_in_words(sizes: tuple[int, ...], columns: int, groups: int, center: bool) -> str:
    """Return what decides the groups, as a checkpoint remembers it for a warning."""
    if columns:
        return f"orthonormal columns of {groups * columns} blocks"
    runs = " + ".join(f"{count} x {size}" for size, count in runs_of_equal_size(sizes))
    return f"groups of {runs} rows, {'centred' if center else 'not centred'}"
