"""What a torch lacks is said before anything is changed."""

from typing import cast

import pytest
from torch import nn
from torch.distributed.device_mesh import DeviceMesh

from orthonorm.distributed import _shard as shard
from orthonorm.distributed import shard_


def test_shard_says_that_this_torch_cannot_leave_weights_out(unenforced: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shard, "fully_shard", lambda module: module)
    model = nn.Linear(4, 3)
    with pytest.raises(RuntimeError, match=r"shard_ .*ignored_params.*torch \d"):
        shard_(model, cast("DeviceMesh", None))
    assert list(dict(model.named_parameters())) == ["weight", "bias"]
