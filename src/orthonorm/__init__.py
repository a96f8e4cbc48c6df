"""Orthogonal weights for any PyTorch network: exact, fast and safe."""

from . import functional as functional

__version__ = "0.1.0"
