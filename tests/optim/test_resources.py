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


# Each backend has a setting of its own since torch 2.9; before, there is one for all.
BY_BACKEND = hasattr(torch.backends.mkldnn, "matmul")


def precisions() -> list[str]:
    if not BY_BACKEND:
        return [torch.get_float32_matmul_precision()]
    return [torch.backends.cuda.matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision]  # type: ignore[attr-defined]


def set_one_backend() -> None:
    if not BY_BACKEND:
        torch.backends.cuda.matmul.allow_tf32 = True
        return
    torch.backends.cuda.matmul.fp32_precision = "tf32"


@pytest.mark.parametrize(
    "reduce",
    [
        pytest.param(lambda: torch.set_float32_matmul_precision("medium"), id="medium"),
        pytest.param(lambda: torch.set_float32_matmul_precision("high"), id="high"),
        pytest.param(lambda: torch.set_float32_matmul_precision("highest"), id="highest"),
        pytest.param(set_one_backend, id="one backend"),  # after which torch cannot read the common setting
    ],
)
def test_the_users_matmul_precision_is_restored(reduce):
    before = torch.get_float32_matmul_precision()
    seen = []
    W = on_manifold((3, 5))
    W.grad = noise((3, 5), 0)
    optimizer = StiefelSGD([W], 0.1)
    handle = torch.Tensor.baddbmm
    try:
        reduce()
        asked = precisions()
        with pytest.MonkeyPatch.context() as patch:

            def spy(*args, **kwargs):
                seen.extend(precisions())
                return handle(*args, **kwargs)

            patch.setattr(torch, "baddbmm", spy)
            optimizer.step()
        assert precisions() == asked
    finally:
        torch.set_float32_matmul_precision(before)
    assert set(seen) == {"ieee" if BY_BACKEND else "highest"}


@pytest.mark.parametrize(("cls", "options"), OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_a_step_does_not_follow_autocast(pair, cls, options):
    results = []
    for enabled in (False, True):
        W = on_manifold((4, 9), None, 0, torch.float32)
        W.grad = noise((4, 9), 0, torch.float32)
        optimizer = cls([W], 0.1, metric=pair[0], retraction=pair[1], **options)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            optimizer.step()
        results.append(W.detach())
    assert torch.equal(*results)
