"""The command line `orthonorm`: commands of both halves, each imported when it is called."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import typer

_CURE = 'pip install "orthonorm[paper]"'


def build_app() -> typer.Typer:
    """The typer application.

    Raises:
        ModuleNotFoundError: typer is missing; it belongs to the extra ``paper``.
    """
    import typer

    from orthonorm.bench.command import bench
    from orthonorm.inspect_command import inspect
    from orthonorm.paper import commands
    from orthonorm.planning import plan

    app = typer.Typer(
        name="orthonorm",
        help="Orthogonal weights for any PyTorch network, and the paper reproduced.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.command("demo")(commands.demo)
    app.command("list")(commands.list_)
    app.command("run")(commands.run)
    app.command("report")(commands.report)
    app.command("bench")(bench)
    app.command("inspect")(inspect)
    app.command("plan")(plan)
    return app


def main() -> None:
    """Entry point: a user's mistake is one line and exit code 2."""
    try:
        _run()
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] == "orthonorm":
            raise
        _fail(f"{error.name} is not installed; this command needs the extra `paper`: {_CURE}")


def _run() -> None:
    from orthonorm.paper.errors import UserError

    app = build_app()
    try:
        app()
    except UserError as error:
        _fail(str(error))


def _fail(message: str) -> NoReturn:
    print(f"orthonorm: {message}", file=sys.stderr)
    raise SystemExit(2)
