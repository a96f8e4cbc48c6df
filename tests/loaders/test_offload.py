"""accelerate keeps V away from the device: the model computes the same, and folding and conversion say what to do."""

from collections.abc import Callable
from typing import Any

import accelerate
import pytest
import torch
from accelerate.hooks import remove_hook_from_submodules

import orthonorm as on
from loaders.networks import ConvertedNet, Net, X, trained

OFFLOADS: dict[str, Callable[[Any, Any], Any]] = {
    "cpu": lambda model, _: accelerate.cpu_offload(model, execution_device="cpu"),
    "disk": lambda model, folder: accelerate.disk_offload(model, folder, execution_device="cpu"),
}
EVERY = pytest.mark.parametrize("offload", OFFLOADS.values(), ids=OFFLOADS)


@EVERY
@pytest.mark.parametrize("fold", [on.fold, on.fold_])
def test_folding_what_is_offloaded_is_refused_and_the_cure_folds(offload: Any, fold: Any, tmp_path: Any):
    model = trained(ConvertedNet())
    expected = model(X).detach()
    offload(model, tmp_path)
    with pytest.raises(ValueError, match=r"a\.weight .*meta.*remove_hook_from_submodules"):
        fold(model)
    torch.testing.assert_close(model(X), expected)
    remove_hook_from_submodules(model)
    torch.testing.assert_close(fold(model)(X), expected)


@EVERY
def test_a_model_that_is_converted_after_the_offload_is_refused(offload: Any, tmp_path: Any):
    model = Net()
    offload(model, tmp_path)
    on.orthogonalize_(model)
    with pytest.raises(ValueError, match=r"a\.weight .*meta.*offload"):
        model(X)


def test_a_model_on_the_meta_device_folds_into_a_plain_one_there():
    with torch.device("meta"):
        plain: Any = on.fold(ConvertedNet())
    assert type(plain.a.weight) is torch.nn.Parameter
    source = trained(Net())
    plain.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(plain(X), source(X))
