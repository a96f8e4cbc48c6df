"""The command line `orthonorm inspect | plan`."""

from ._main import main as main
