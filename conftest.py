"""What every test runs under: enforced types, one thread, seeded numbers, warnings as errors."""

import importlib
import inspect
import os
from collections.abc import Iterator

import hypothesis
import jaxtyping
import pytest
import torch

TYPECHECK = os.environ.get("ORTHONORM_TYPECHECK", "1") != "0"

if TYPECHECK:
    # Only what is imported after this line is wrapped.
    jaxtyping.install_import_hook(["orthonorm", "orthonorm_paper", "benchmarks"], "beartype.beartype")

# Here, since pytest, collecting doctests, would load the package's __init__ past the hook.
importlib.import_module("orthonorm")

# Workers run side by side, so more threads than one would only wait for each other.
torch.set_num_threads(1)


class TorchRandom:
    """Torch's generator as Hypothesis wants it: an example is the same when it is replayed."""

    def seed(self, a: int) -> None:
        torch.manual_seed(a)

    def getstate(self) -> torch.Tensor:
        return torch.get_rng_state()

    def setstate(self, state: torch.Tensor) -> None:
        torch.set_rng_state(state)


# Hypothesis keeps only a weak reference.
TORCH_RANDOM = TorchRandom()
hypothesis.register_random(TORCH_RANDOM)

hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, database=None, max_examples=5)
hypothesis.settings.register_profile(
    "ci", deadline=None, derandomize=True, database=None, max_examples=25, print_blob=True
)
hypothesis.settings.register_profile(
    "nightly",
    deadline=None,
    derandomize=False,
    max_examples=int(os.environ.get("ORTHONORM_EXAMPLES", "1000")),
    print_blob=True,
)
hypothesis.settings.load_profile(os.environ.get("ORTHONORM_HYPOTHESIS", "ci"))


# What torch 2.6, the oldest supported, warns of in its own code; everything else is an error there too.
WARNINGS_OF_TORCH_2_6 = (
    "ignore:Please use `torch.vmap`",
    "ignore:DTensor random operators may not",
    "ignore:<class 'torch.autograd.function.Function'> should not be instantiated",
    "ignore:Skipping serialization of skipfiles",
)


def pytest_configure(config: pytest.Config) -> None:
    if torch.__version__ < "2.7":
        for line in WARNINGS_OF_TORCH_2_6:
            config.addinivalue_line("filterwarnings", line)


@pytest.fixture(autouse=True)
def seeded() -> Iterator[None]:
    """Start each test from one state of torch's generators, and give back what was there."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(0)
        yield


@pytest.fixture
def unenforced() -> Iterator[None]:
    """Run as users do, without the wrappers that enforce types: a wrong type meets the library's own check."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.hookimpl(tryfirst=True)  # before the choice by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave tests that compile to a run without the wrappers, and those of FSDP2 to a torch that can run them.

    Tests that use the pool of ranks are marked as such.
    """
    for item in items:
        if "ranks" in getattr(item, "fixturenames", ()):
            item.add_marker("ranks")
    left = [item for item in items if item.get_closest_marker("compiled")] if TYPECHECK else []
    if not has_fsdp2():
        left += [item for item in items if needs_fsdp2(item)]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def has_fsdp2() -> bool:
    """Whether torch's `fully_shard` runs on the CPU and takes `ignored_params`: that of the oldest, 2.6, does not."""
    from torch.distributed.fsdp import fully_shard

    return "ignored_params" in inspect.signature(fully_shard).parameters


def needs_fsdp2(item: pytest.Item) -> bool:
    """Whether a test trains with `fully_shard` or `shard_`: by its mark, and the example of `shard_`."""
    marked = item.get_closest_marker("fsdp2") is not None
    return marked or item.nodeid.endswith("::orthonorm.distributed._shard.shard_")
