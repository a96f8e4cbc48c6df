"""The name that a user may have meant, for messages."""

from collections.abc import Iterable
from difflib import get_close_matches
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

__all__ = ["nearest_name", "refusing_unknown_options"]

T = TypeVar("T")


def nearest_name(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name that `name` may be a slip for; None where none is near.

    Args:
        name: what was written.
        known: the names there are.
        cutoff: how alike the two must be, from 0 to 1; a name of five letters or more that is a part of a known one
            always is, and so are the initials of its words.

    Examples:
        >>> nearest_name("manifol", ["metric", "manifold"])
        'manifold'
        >>> nearest_name("group", ["metric", "group_size"])
        'group_size'
        >>> nearest_name("wd", ["lr", "weight_decay"])
        'weight_decay'
    """
    known = list(known)
    part = [other for other in known if len(name) >= 5 and name in other]
    short = [other for other in known if "_" in other and name == "".join(word[:1] for word in other.split("_"))]
    return next(iter([*part, *short, *get_close_matches(name, known, n=1, cutoff=cutoff)]), None)


def refusing_unknown_options(cls: type[T]) -> type[T]:
    """Let a class of keyword-only options say which of them an unknown name may be a slip for.

    Args:
        cls: the class, whose signature stays as it is.

    Examples:
        >>> from dataclasses import dataclass
        >>> @refusing_unknown_options
        ... @dataclass(kw_only=True)
        ... class Config:
        ...     group_size: int = 64
        >>> Config(groups=8)
        Traceback (most recent call last):
        ...
        TypeError: Config has no option 'groups'; did you mean 'group_size'? Its options are group_size.
    """
    make = cls.__init__
    options = list(signature(make).parameters)[1:]

    @wraps(make)
    def _init(self: T, *args: Any, **given: Any) -> None:
        unknown = next((name for name in given if name not in options), None)
        if unknown is not None:
            near = nearest_name(unknown, options)
            meant = f"; did you mean {near!r}?" if near else "."
            raise TypeError(f"{cls.__name__} has no option {unknown!r}{meant} Its options are {', '.join(options)}.")
        if args:
            raise TypeError(f"{cls.__name__} takes its options by name, as {options[0]}={args[0]!r}; got {args!r}.")
        make(self, **given)

    cls.__init__ = _init  # type: ignore[method-assign]
    return cls
