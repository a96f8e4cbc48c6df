"""What a fault is, and where it is: an expression or a statement of a function, whatever the layout around it.

The place is a package and a qualified name ("orthonorm.functional:_eigh_root"), looked for in every file of the
package. `old` is compared with the syntax tree, so comments, line breaks, quotes and parentheses do not matter.
"""

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["SOURCES", "Fault", "FaultError", "seed"]

# Where the packages lie, below the root of the repository.
SOURCES = ("src", "reproduction/src")


class FaultError(Exception):
    """An entry of the list, or the run itself, is wrong: nothing can be said about the tests."""


@dataclass(frozen=True)
class Fault:
    """One expression (or statements) of one function replaced by another, and the test that must fail because of it."""

    name: str
    where: str
    """package:qualified name of a function, a class or an assigned name."""
    old: str
    """What must stand there exactly once."""
    new: str
    test: str


def seed(root: Path, fault: Fault) -> tuple[Path, str]:
    """Return the file that the fault is in, relative to the root, and its text with the fault.

    Raises:
        FaultError: unless the place is found exactly once. The message shows what is there now.
    """
    pattern = _parse(fault, fault.old)
    scopes = [(path, tree, scope) for path, tree in _modules(root, fault) for scope in _scopes(tree, fault)]
    if not scopes:
        raise FaultError(f"fault {fault.name!r}: {fault.where} is not there; is it renamed or in another package?")
    found = [(path, tree, node) for path, tree, scope in scopes for node in ast.walk(scope) if _same(node, pattern)]
    if len(found) != 1:
        near = difflib.get_close_matches(fault.old, [text for *_, scope in scopes for text in _texts(scope)], n=3)
        files = ", ".join(f"{path}:{scope.lineno}" for path, _, scope in scopes)
        raise FaultError(
            f"fault {fault.name!r}: {fault.old!r} occurs {len(found)} times in {fault.where} ({files}), and must occur "
            f"once. Nearest there: {' | '.join(dict.fromkeys(near)) or 'nothing'}"
        )
    path, tree, node = found[0]
    new = _parse(fault, fault.new)
    if isinstance(pattern, ast.expr) and not isinstance(new, ast.expr):
        raise FaultError(f"fault {fault.name!r}: {fault.new!r} is no expression, as {fault.old!r} is")
    _Replacement(node, new).visit(tree)  # in place, as no fault replaces a whole module
    return path, ast.unparse(ast.fix_missing_locations(tree))


def _modules(root: Path, fault: Fault) -> Iterator[tuple[Path, ast.Module]]:
    package, _, name = fault.where.partition(":")
    if not name:
        raise FaultError(f"fault {fault.name!r}: the place must be package:name; got {fault.where!r}")
    last = re.escape(name.rpartition(".")[2])
    definition = re.compile(rf"^\s*(?:(?:async )?def |class )?{last}\b", re.MULTILINE)
    for source in SOURCES:
        folder = root / source / Path(*package.split("."))
        files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
        for path in files:
            if path.is_file() and definition.search(text := path.read_text()):
                yield path.relative_to(root), ast.parse(text)


def _scopes(tree: ast.Module, fault: Fault) -> list[ast.stmt]:
    """Return the definitions of the fault's name in a module."""
    wanted = fault.where.partition(":")[2].split(".")
    level: list[ast.stmt] = [tree]  # type: ignore[list-item]
    for name in wanted:
        level = [node for outer in level for node in getattr(outer, "body", ()) if name in _defines(node)]
    return level


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _parse(fault: Fault, text: str) -> ast.expr | list[ast.stmt]:
    """Return an expression, or the statements that the text is."""
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        pass
    try:
        return ast.parse(text).body
    except SyntaxError as error:
        raise FaultError(f"fault {fault.name!r}: this is no Python: {text!r} ({error})") from None


def _same(node: ast.AST, pattern: ast.expr | list[ast.stmt]) -> bool:
    wanted = pattern[0] if isinstance(pattern, list) else pattern
    return type(node) is type(wanted) and ast.dump(node) == ast.dump(wanted)


def _texts(scope: ast.stmt) -> list[str]:
    return [ast.unparse(node) for node in ast.walk(scope) if isinstance(node, ast.expr | ast.stmt)]


class _Replacement(ast.NodeTransformer):
    def __init__(self, node: ast.AST, new: ast.expr | list[ast.stmt]) -> None:
        self.node, self.new = node, new

    def visit(self, node: ast.AST):
        if node is not self.node:
            return self.generic_visit(node)
        return self.new
