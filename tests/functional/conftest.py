"""Every test of the functional half runs over the whole table of methods."""

import os
import sys

import pytest
import torch

from orthonorm.functional._methods import METHODS

# Triton is made for Linux, and comes with torch there; the kernels need the one of torch 2.9.
collect_ignore = [] if sys.platform == "linux" and torch.__version__ >= "2.9" else ["test_fused.py"]

# Without its kernels "fused" is "newton", to the last bit (test_fused.py). Under Triton's interpreter it runs alone.
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
COVERED = ["fused"] if INTERPRETED else [name for name in METHODS if name != "fused"]


@pytest.fixture(params=COVERED, scope="session")
def method(request: pytest.FixtureRequest) -> str:
    """Each method of the table, so that a new entry meets every test."""
    return request.param


@pytest.fixture(params=[True, False], ids=["centred", "uncentred"], scope="session")
def center(request: pytest.FixtureRequest) -> bool:
    """With the row means taken off, and without."""
    return request.param
