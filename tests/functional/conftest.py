"""Every test of the functional half runs over the whole table of methods."""

import pytest

from orthonorm.functional._methods import METHODS


@pytest.fixture(params=list(METHODS), scope="session")
def method(request: pytest.FixtureRequest) -> str:
    """Each method of the table, so that a new entry meets every test."""
    return request.param


@pytest.fixture(params=[True, False], ids=["centred", "uncentred"], scope="session")
def center(request: pytest.FixtureRequest) -> bool:
    """With the row means taken off, and without."""
    return request.param
