"""Memory of a step, and the precision of its products."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from optim.problems import OPTIMIZERS, PAIRS, noise, on_manifold
from orthonorm.optim import StiefelSGD


class LargestResult(TorchDispatchMode):
    """Remembers the largest number of entries that any operation returned."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.entries = max(self.entries, tensor.numel())
        return result


@pytest.mark.parametrize("shape", [(8, 20_000), (20_000, 8), (8, 16, 50, 25)])
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_nothing_is_larger_than_the_weight(pair, shape):
    W = on_manifold(shape, None, 0, torch.float32)
    W.grad = noise(shape, 0, torch.float32)
    with LargestResult() as seen:
        for cls, options in OPTIMIZERS.values():
            optimizer = cls([W], 1.0, metric=pair[0], retraction=pair[1], **options)
            optimizer.step()
    assert seen.entries <= W.numel()


@pytest.mark.parametrize("precision", ["medium", "high", "highest"])
def test_the_users_matmul_precision_is_restored(precision):
    before = torch.get_float32_matmul_precision()
    seen = []
    W = on_manifold((3, 5))
    W.grad = noise((3, 5), 0)
    optimizer = StiefelSGD([W], 0.1)
    handle = torch.Tensor.baddbmm
    try:
        torch.set_float32_matmul_precision(precision)
        with pytest.MonkeyPatch.context() as patch:

            def spy(*args, **kwargs):
                seen.append(torch.get_float32_matmul_precision())
                return handle(*args, **kwargs)

            patch.setattr(torch, "baddbmm", spy)
            optimizer.step()
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision(before)
    assert set(seen) == {"highest"}
