"""Entry point of the command line: the parser, and the one place that turns errors into exit codes."""

import argparse
import sys
from collections.abc import Sequence

from ._inspect import add_to as add_inspect
from ._plan import add_to as add_plan

__all__ = ["build_parser", "main"]


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of `orthonorm`.

    Examples:
        >>> build_parser().parse_args(["plan", "resnet50", "--ranks", "4"]).ranks
        4
    """
    parser = argparse.ArgumentParser(prog="orthonorm", description="Orthogonal weights for any PyTorch network.")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_inspect(commands)
    add_plan(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; a user's mistake is one line on standard error and exit code 2.

    Args:
        arguments: what stands behind `orthonorm`; `sys.argv` if None.

    Raises:
        SystemExit: with code 2 for a mistake.
    """
    options = build_parser().parse_args(arguments)
    try:
        print(options.run(options))
    except (OSError, ValueError, TypeError, ImportError) as error:
        print("orthonorm:", " ".join(str(error).split()), file=sys.stderr)
        raise SystemExit(2) from None
