"""The processes that the tests of this folder share."""

from collections.abc import Iterator

import pytest

from on_ranks.pool import Pool


@pytest.fixture(scope="session")
def ranks() -> Iterator[Pool]:
    pool = Pool()
    yield pool
    pool.close()
