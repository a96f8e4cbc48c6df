"""The figures of a campaign, written where ORTHONORM_CAMPAIGN_FIGURES says."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from campaign.figures import Figures


@pytest.hookimpl(tryfirst=True)  # before the choice by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the campaign to the longer runs."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("slow")


@pytest.fixture(scope="session")
def figures() -> Figures:
    """One for the session, so that every property counts into one file."""
    return Figures()


@pytest.fixture(autouse=True)
def written(figures: Figures) -> Iterator[None]:
    """Write the file after each property, so that a campaign that is cut off leaves what it has."""
    yield
    if file := os.environ.get("ORTHONORM_CAMPAIGN_FIGURES"):
        figures.write(Path(file))
