"""A divided model that is compiled trains as the one that is not: the exchange stays outside of the graphs."""

import pytest

from on_ranks import data_parallel
from on_ranks.pool import Pool


@pytest.mark.nightly
@pytest.mark.compiled
def test_a_compiled_divided_model_trains_as_the_eager_one(ranks: Pool):
    wanted = ranks.run(2, data_parallel.train_compiled, False)
    for found, state in zip(ranks.run(2, data_parallel.train_compiled, True), wanted, strict=True):
        for key, value in state.items():
            assert (found[key] - value).abs().max() < 1e-6, key
