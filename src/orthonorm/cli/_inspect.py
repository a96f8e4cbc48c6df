"""The command `orthonorm inspect`: the table of `inspect_file` on the command line."""

import argparse
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from orthonorm.convert import OrthogonalConfig
from orthonorm.diagnostics import inspect_file

__all__ = ["add_to", "inspect"]


def add_to(commands: Any) -> None:
    """Add the command to the subparsers of `orthonorm`."""
    parser = commands.add_parser(
        "inspect",
        help="show how orthogonal the weights in a file are",
        description="Show how orthogonal the weights in a file are. The table has a row for each weight, with its "
        "groups, its orthogonality error, the condition number and norm of V, the norm of W and the scale. A file "
        "of torch.save remembers the options of the conversion. For other files pass them here. No code in the file "
        "is run.",
    )
    add = parser.add_argument
    add("file", type=Path, help="a .safetensors file, or a state_dict saved by torch.save")
    add(
        "--only",
        action="append",
        metavar="PATTERN",
        help="show the weights with a matching name, such as 'encoder.*'; repeatable",
    )
    add("--group-size", type=int, help="largest number of rows in a group (default: the limit of each weight)")
    add("--grouping", default="balanced", help="balanced or tail (default: %(default)s)")
    add(
        "--tall",
        default="groups",
        help="groups or columns, for weights with more rows than columns (default: %(default)s)",
    )
    add("--blocks", type=int, help="number of equal blocks of rows that groups must not straddle")
    add(
        "--center",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="whether the mean of each row was subtracted (default: --no-center)",
    )
    parser.set_defaults(run=inspect)


def inspect(options: argparse.Namespace) -> str:
    """Return what the command prints."""
    config = OrthogonalConfig(
        group_size=options.group_size,
        grouping=options.grouping,
        tall=options.tall,
        blocks=options.blocks,
        center=options.center,
    )
    return str(inspect_file(options.file, config, filter_fn=_matcher(options.only) if options.only else None))


def _matcher(patterns: list[str]) -> Callable[[str], bool]:
    return lambda name: any(fnmatchcase(name, pattern) for pattern in patterns)
