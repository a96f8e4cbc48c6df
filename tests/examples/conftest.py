"""Every test of this folder asks whether the examples hold what their pages say."""

from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)  # before the choice by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("docs")
