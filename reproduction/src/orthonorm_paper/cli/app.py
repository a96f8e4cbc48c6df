"""The command line `orthonorm-paper`: commands imported when they are called."""

from __future__ import annotations

import sys

import typer

from orthonorm_paper.exceptions import UserError

from . import commands

__all__ = ["build_app", "main"]


def build_app() -> typer.Typer:
    """Return the typer application."""
    app = typer.Typer(
        name="orthonorm-paper",
        help="Reproduce the experiments of the paper Orthogonal Weight Normalization. `list` shows their commands.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.command("demo")(commands.demo)
    app.command("list")(commands.list_)
    app.command("run")(commands.run)
    app.command("report")(commands.report)
    app.command("pack")(commands.pack)
    return app


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2."""
    try:
        build_app()()
    except UserError as error:
        print(f"orthonorm-paper: {error}", file=sys.stderr)
        raise SystemExit(2) from None
