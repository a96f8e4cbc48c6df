"""Certificates against the distance to the nearest input of another class, which a linear classifier tells."""

import math
import random
from fractions import Fraction

import pytest
import torch

import orthonorm as on


def test_a_certificate_reaches_as_far_as_the_boundary_of_a_linear_classifier():
    x = torch.randn(400, 2, dtype=torch.float64)
    labels = torch.randint(2, (400,))
    # The identity has the constant 1, and the boundary x_0 = x_1 lies |x_0 - x_1| / sqrt 2 away.
    distances = (x[:, 0] - x[:, 1]).abs() / math.sqrt(2)
    right = x.argmax(1) == labels
    for radius in (0.0, 0.1, 0.5, 1.0, 5.0):
        expected = float((right & (distances > radius)).double().mean())
        assert on.certified_accuracy(x, labels, radius, 1.0) == pytest.approx(expected, abs=1e-12)
        assert on.certified_accuracy(3 * x, labels, radius, 3.0) == pytest.approx(expected, abs=1e-12)


def test_near_the_boundary_only_margins_beyond_it_are_certified():
    generator = random.Random(0)
    for _ in range(300):
        bound, radius = generator.random(), generator.random()
        boundary = 2 * Fraction(bound) ** 2 * Fraction(radius) ** 2  # of the squared margin, exactly
        for steps in range(-16, 17):
            margin = math.sqrt(boundary) * (1 + steps * 2.0**-53)
            logits = torch.tensor([[margin, 0.0]], dtype=torch.float64)
            certified = on.certified_accuracy(logits, torch.tensor([0]), radius, bound)
            assert certified == 0 or Fraction(margin) ** 2 > boundary
            assert certified == 1 or steps < 16


def test_equal_outputs_certify_nothing():
    logits = torch.tensor([[0.1, 0.0], [1.0, 1.0]])
    assert on.certified_accuracy(logits, torch.tensor([0, 0]), 0, 1) == 0.5


def test_nan_certifies_nothing():
    logits, labels = torch.tensor([[3.0, 0.0], [math.nan, 0.0], [3.0, math.nan]]), torch.tensor([0, 0, 0])
    assert on.certified_accuracy(logits, labels, 0.1, 1.0) == pytest.approx(1 / 3)
    assert on.certified_accuracy(logits, labels, 0.1, math.nan) == 0


@pytest.mark.parametrize(
    ("shape", "radius", "bound", "message"),
    [
        pytest.param((2, 3), -1.0, 1.0, "radius must not be negative; got -1.0", id="radius"),
        pytest.param((2, 3), 1.0, -1.0, "bound must not be negative; got -1.0", id="bound"),
        pytest.param((2, 1), 1.0, 1.0, r"two classes at least; got \(2, 1\)", id="classes"),
        pytest.param((0, 3), 1.0, 1.0, r"a sample and .*; got \(0, 3\)", id="samples"),
    ],
)
def test_wrong_inputs(shape: tuple[int, int], radius: float, bound: float, message: str):
    with pytest.raises(ValueError, match=message):
        on.certified_accuracy(torch.zeros(shape), torch.zeros(shape[0], dtype=torch.long), radius, bound)


@pytest.mark.parametrize(
    "labels",
    [torch.tensor([0]), torch.tensor([0, 1]), torch.tensor([[0], [1], [1]]), torch.tensor([0, 1, 7]), torch.zeros(3)],
    ids=["one", "too few", "column", "no such class", "floating"],
)
@pytest.mark.usefixtures("unenforced")
def test_labels_are_one_class_for_each_sample(labels: torch.Tensor):
    with pytest.raises(ValueError, match="labels must be"):
        on.certified_accuracy(torch.randn(3, 4), labels, 0.0, 1.0)
