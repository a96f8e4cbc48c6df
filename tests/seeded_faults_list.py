"""The faults that the suite must notice, each with the test that notices it.

To add one: a name that says what is broken, the file under src/, a text that occurs there exactly
once, what it becomes, and the node ids of the tests that must fail an assertion because of it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One text of one file replaced by another, and the tests named to fail because of it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="the version is not the one that was released",
        file="orthonorm/__init__.py",
        old='__version__ = "0.1.0"',
        new='__version__ = "0.0.0"',
        tests=("tests/test_version.py::test_the_version_is_the_packages",),
    ),
)
