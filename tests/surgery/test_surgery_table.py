"""Each row of the page "Other code and a computed weight" is a test: it works, or raises what the page says."""

import pytest
import torch

from orthogonal_layers import weight
from surgery.rows import Row, layer_of
from surgery.table import SECTIONS

# A package that few environments have is met in the nightly job.
CASES = [
    pytest.param(row, id=f"{title}: {row.what}", marks=[pytest.mark.nightly] if row.needs else [])
    for title, rows in SECTIONS.items()
    for row in rows
]


@pytest.mark.usefixtures("unenforced")  # as users run it
@pytest.mark.parametrize("row", CASES)
def test_a_row_of_the_table_is_so(row: Row):
    if row.needs:
        pytest.importorskip(row.needs)
    if row.raises is not None:
        assert row.act is not None
        layer = layer_of()
        before = {name: value.clone() for name, value in layer.state_dict().items()}
        W = weight(layer).detach()
        with pytest.raises(row.raises) as caught:
            row.act(layer)
        assert [name for name in row.names if name not in str(caught.value)] == []
        if row.intact:
            after = layer.double().state_dict()
            assert list(after) == list(before)
            assert all(torch.equal(value, before[name]) for name, value in after.items())
            assert torch.equal(weight(layer), W)
    assert row.check is not None
    row.check()
