"""Numbers with their nouns."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """Number and noun, in the plural where it belongs.

    Examples:
        >>> counted(1, "run"), counted(1200, "run")
        ('1 run', '1,200 runs')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
