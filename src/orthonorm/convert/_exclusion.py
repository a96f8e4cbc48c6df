"""Layers that a conversion is to leave as they are, by name or shell pattern."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from orthonorm._nearest_name import nearest_name

__all__ = ["Exclusion"]


class Exclusion:
    """The names and shell patterns of what a conversion leaves as it is.

    A pattern is compared with the name of the weight, of its layer, and of every module that the layer is in, so that
    the name of a block leaves out all of it.

    Args:
        model: the model whose names are meant.
        patterns: names and shell patterns (`*`, `?`, `[...]`); a text alone is one of them.

    Raises:
        TypeError: if they are not texts.
    """

    def __init__(self, model: nn.Module, patterns: Iterable[str]) -> None:
        given: Any = (patterns,) if isinstance(patterns, str) else patterns
        given = tuple(given) if isinstance(given, Iterable) else None
        if given is None or not all(isinstance(pattern, str) for pattern in given):
            raise TypeError(
                f'exclude must be names or shell patterns; got {patterns!r}. Write exclude=["head", "*.attn.qkv"].'
            )
        self.patterns: tuple[str, ...] = given
        self.model = type(model).__name__
        self.names: dict[int, list[str]] = {}
        for fqn, module in model.named_modules(remove_duplicate=False):
            self.names.setdefault(id(module), []).append(fqn)

    def names_of(self, module: nn.Module, name: str) -> set[str]:
        """Return all names by which a pattern may mean the tensor of a module."""
        found = set()
        for fqn in self.names[id(module)]:
            path = f"{fqn}.{name}" if fqn else name
            while path:
                found.add(path)
                path = path.rpartition(".")[0]
        return found

    def find(self, module: nn.Module, name: str) -> str | None:
        """Return the pattern that leaves out the tensor of a module; None if none does."""
        names = self.names_of(module, name)
        return next((pattern for pattern in self.patterns if any(fnmatchcase(n, pattern) for n in names)), None)

    def check(self, weights: Iterable[tuple[nn.Module, str]]) -> None:
        """Raise a ValueError for a pattern that matches none of the weights, with the nearest name."""
        known = {path: None for module, name in weights for path in sorted(self.names_of(module, name))}
        for pattern in self.patterns:
            if not any(fnmatchcase(path, pattern) for path in known):
                near = nearest_name(pattern, known)
                raise ValueError(
                    f"exclude must name weights, layers or blocks of the model; got {pattern!r}, which matches none of "
                    f"this {self.model}. "
                    + (f"Did you mean {near!r}?" if near else "conversion_plan(model) lists their names.")
                )
