"""The table of methods: which one "auto" is, and how many steps Newton's iteration takes."""

import pytest
import torch

from orthonorm.functional._methods import _lyapunov_floor, choose_method, newton_scales


@pytest.mark.parametrize(("device", "auto"), [("cpu", "eigh"), ("cuda", "newton"), ("mps", "newton"), ("meta", "eigh")])
def test_auto_goes_by_the_device(device: str, auto: str):
    assert choose_method("auto", torch.device(device)) == auto


def test_the_number_of_steps_follows_the_interval():
    # The lower end may come to rest a half unit of round-off below 1, where it must count as 1.
    counts = [len(newton_scales(_lyapunov_floor(torch.empty(n, n, dtype=torch.float64)) ** 0.5)) for n in range(1, 513)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (21, 24)
