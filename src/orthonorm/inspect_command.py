"""The command `orthonorm inspect`: the table of `inspect_file` on the command line."""

import sys
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import typer

from .checkpoints import inspect_file
from .convert import OLMConfig

__all__ = ["inspect"]


def inspect(
    file: Annotated[Path, typer.Argument(help="A .safetensors file, or a state_dict saved by torch.save.")],
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Weights whose name matches, as 'encoder.*'; repeatable."),
    ] = None,
    group_size: Annotated[
        int | None, typer.Option(help="Rows a group at most; each weight's limit if left out.")
    ] = None,
    grouping: Annotated[str, typer.Option(help="balanced or tail.")] = "balanced",
    blocks: Annotated[int | None, typer.Option(help="Equal blocks of rows that groups must not straddle.")] = None,
    center: Annotated[bool, typer.Option("--center/--no-center", help="Rows are centred first.")] = True,
) -> None:
    """Show how orthogonal the weights in a file are: groups, error, condition and norm of V, scale.

    The file does not say how the model was converted, so that is asked for; no code in it is run.
    """
    try:
        config = OLMConfig(group_size=group_size, grouping=grouping, blocks=blocks, center=center)
        report = inspect_file(file, config, filter_fn=_matcher(only) if only else None)
    except (OSError, ValueError, TypeError, ImportError) as error:
        print("orthonorm:", " ".join(str(error).split()), file=sys.stderr)
        raise SystemExit(2) from None
    print(report)


def _matcher(patterns: list[str]) -> Callable[[str], bool]:
    return lambda name: any(fnmatchcase(name, pattern) for pattern in patterns)
