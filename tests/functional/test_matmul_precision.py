"""The setting of float32 products: full where the library computes, the user's everywhere else, in every thread."""

import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from optim.problems import noise, on_manifold
from orthonorm.functional import _matmul_precision as matmul_precision
from orthonorm.functional import orthonormalize
from orthonorm.functional._matmul_precision import full_float32, products_are_reduced
from orthonorm.optim import StiefelSGD

# Since torch 2.9 the precision of products is a tree of settings; before, there is one for all.
TREE = hasattr(torch._C, "_set_fp32_precision_setter")
ROOT, CPU, CPU_MATMUL, CUDA, CUDA_MATMUL = PLACES = (
    ("generic", "all"),
    ("mkldnn", "all"),
    ("mkldnn", "matmul"),
    ("cuda", "all"),
    ("cuda", "matmul"),
)


def set_tree(values: dict[tuple[str, str], str]) -> None:
    for place, value in values.items():
        torch._C._set_fp32_precision_setter(*place, value)


def precisions() -> list[str]:
    """The values in force, of the CPU's products first."""
    if not TREE:
        return [torch.get_float32_matmul_precision()]
    return [torch._C._get_fp32_precision_getter(*place) for place in (CPU_MATMUL, *PLACES)]


def answers() -> list[list[str]]:
    """The values in force now, and after each setting above an operation is changed: what follows what."""
    seen = [precisions()]
    for place in (CPU, CUDA, ROOT) if TREE else ():
        for value in ("ieee", "tf32", "none"):
            set_tree({place: value})
            seen.append(precisions())
    return seen


@pytest.fixture
def fresh_settings():
    """The settings of a fresh process, before and after."""

    def reset():
        torch.set_float32_matmul_precision("highest")
        set_tree(dict.fromkeys(PLACES, "none") if TREE else {})

    reset()
    yield reset
    reset()


# What a user may have set. A pair of equal values, one above the other, reads as one that follows the other.
ASKED = {
    "nothing": lambda: None,
    **{value: partial(torch.set_float32_matmul_precision, value) for value in ("medium", "high", "highest")},
}
ASKED_OF_THE_TREE = {
    "the root": {ROOT: "tf32"},
    "the CPU's": {CPU: "bf16"},
    "products on the CPU": {CPU_MATMUL: "tf32"},
    "products on CUDA": {CUDA_MATMUL: "tf32"},  # after which torch cannot read the common setting
    "the root and products": {ROOT: "tf32", CPU_MATMUL: "tf32", CUDA_MATMUL: "tf32"},
    "the root and the CPU's": {ROOT: "tf32", CPU: "tf32", CUDA: "tf32"},
    "full at the root, not below": {ROOT: "ieee", CPU: "bf16"},
    "full below": {ROOT: "tf32", CPU_MATMUL: "ieee"},
}
if TREE:
    ASKED |= {name: partial(set_tree, values) for name, values in ASKED_OF_THE_TREE.items()}


class WatchedSGD(StiefelSGD):
    """Calls `inside` in the middle of a step."""

    def __init__(self, inside: Callable[[], object]) -> None:
        W = on_manifold((3, 5), dtype=torch.float32)
        W.grad = noise((3, 5), 0, torch.float32)
        super().__init__([W], 0.1)
        self.inside = inside

    def _manifold_step(self, group, blocks):
        self.inside()
        super()._manifold_step(group, blocks)


class BeforeProducts(TorchDispatchMode):
    """Calls `inside` before the first matrix product of its thread."""

    def __init__(self, inside: Callable[[], object]) -> None:
        super().__init__()
        self.inside: Callable[[], object] | None = inside

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if self.inside is not None and "mm" in func.__name__:
            inside, self.inside = self.inside, None
            inside()
        return func(*args, **(kwargs or {}))


def step(inside: Callable[[], object]) -> None:
    WatchedSGD(inside).step()


def transform(inside: Callable[[], object]) -> None:
    V = torch.randn(3, 5)
    with BeforeProducts(inside):
        orthonormalize(V)


def differentiate(inside: Callable[[], object]) -> None:
    V = torch.randn(3, 5, requires_grad=True)
    loss = orthonormalize(V).square().sum()
    # A device's backward has a thread of its own; on the CPU it runs in the caller's.
    with BeforeProducts(inside):
        loss.backward()


def asked_for(ask: Callable[[], object], fresh_settings: Callable[[], None]) -> list[list[str]]:
    """The answers after what a user asks for, which is in force again on return."""
    ask()
    expected = answers()
    fresh_settings()
    ask()
    return expected


COMPUTED = [step, transform, differentiate]
FULL = {"ieee", "none", "highest"}


@pytest.mark.parametrize("compute", COMPUTED)
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_products_are_in_full_precision_and_the_users_settings_stay(ask, compute, fresh_settings):
    expected = asked_for(ask, fresh_settings)
    seen = []
    compute(lambda: seen.append(precisions()[0]))
    assert seen[0] in FULL
    assert answers() == expected


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_products_on_cuda_are_raised_in_the_same_way(ask, fresh_settings):
    expected = asked_for(ask, fresh_settings)
    with full_float32(torch.device("cuda"), torch.float32):
        assert precisions()[-1] in FULL
    assert answers() == expected


def test_nothing_is_changed_for_float64(fresh_settings):
    torch.set_float32_matmul_precision("high")
    before = precisions()
    with full_float32(torch.device("cpu"), torch.float64):
        assert precisions() == before


@pytest.mark.parametrize("compute", COMPUTED)
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_two_threads_that_overlap_are_exact_and_leave_the_users_settings(ask, compute, fresh_settings):
    expected = asked_for(ask, fresh_settings)
    seen = []
    first_is_inside, second_is_inside, first_is_done = (threading.Event() for _ in range(3))

    def first():
        first_is_inside.set()
        assert second_is_inside.wait(30)

    def second():
        second_is_inside.set()
        assert first_is_done.wait(30)
        seen.append(precisions()[0])

    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(compute, first)
        assert first_is_inside.wait(30)
        other = threads.submit(compute, second)
        one.result(30)
        first_is_done.set()
        other.result(30)
    assert seen[0] in FULL
    assert answers() == expected


@pytest.mark.parametrize("compute", COMPUTED)
def test_what_fails_leaves_the_users_settings(compute, fresh_settings):
    torch.set_float32_matmul_precision("medium")
    asked = precisions()

    def fail():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compute(fail)
    assert precisions() == asked


@pytest.mark.parametrize("ask", [ASKED[name] for name in ("high", "the root") if name in ASKED])
def test_what_is_traced_while_a_thread_computes_sees_the_users_setting(ask, fresh_settings):
    ask()
    with full_float32(torch.device("cpu"), torch.float32):
        assert products_are_reduced()
    assert products_are_reduced()
    fresh_settings()
    assert not products_are_reduced()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_process_that_is_forked_while_a_thread_computes_has_the_users_setting(fresh_settings):
    torch.set_float32_matmul_precision("high")
    expected = precisions()
    with full_float32(torch.device("cpu"), torch.float32), matmul_precision._RAISED._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            right = precisions() == expected
            with full_float32(torch.device("cpu"), torch.float32):
                right &= precisions()[0] in FULL
            os._exit(0 if right and precisions() == expected else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert precisions() == expected
