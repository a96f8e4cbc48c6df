"""Memory of a step, and that it does not follow autocast."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from optim.problems import WAYS, noise, on_manifold


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
@pytest.mark.parametrize(("cls", "options"), WAYS.values(), ids=WAYS)
def test_nothing_is_larger_than_the_weight(cls, options, shape):
    W = on_manifold(shape, None, 0, torch.float32)
    W.grad = noise(shape, 0, torch.float32)
    with LargestResult() as seen:
        cls([W], 1.0, **options).step()
    assert seen.entries <= W.numel()


@pytest.mark.parametrize(("cls", "options"), WAYS.values(), ids=WAYS)
def test_a_step_does_not_follow_autocast(cls, options):
    results = []
    for enabled in (False, True):
        W = on_manifold((4, 9), None, 0, torch.float32)
        W.grad = noise((4, 9), 0, torch.float32)
        optimizer = cls([W], 0.1, **options)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            optimizer.step()
        results.append(W.detach())
    assert torch.equal(*results)
