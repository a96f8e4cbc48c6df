"""Twenty steps of every method on every network give the curves that were committed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from paper_support.golden_curves import curve, golden_files, golden_runs, read

GOLDEN = read()
RUNS = golden_runs()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    yield from golden_files(tmp_path_factory.mktemp("golden"))


def tolerance(name: str) -> float:
    """Six digits, or ten times the distance that other instruction sets and kernels caused."""
    return max(1e-5, 10 * GOLDEN[name]["distance"])


def test_every_method_of_every_network_has_its_curve_in_digits_that_mean_something():
    assert set(RUNS) == set(GOLDEN)
    loose = [name for name in RUNS if tolerance(name) > 1e-2]
    # Batch normalisation of seven samples in branches one pixel wide carries a rounding that far.
    assert all(name.startswith("inception-cifar") for name in loose)


@pytest.mark.parametrize("name", RUNS)
def test_a_run_gives_its_curve(name: str, files: Path, tmp_path: Path):
    rel = tolerance(name)
    assert curve(RUNS[name], tmp_path, files) == pytest.approx(GOLDEN[name]["losses"], rel=rel, abs=1e-2 * rel)
