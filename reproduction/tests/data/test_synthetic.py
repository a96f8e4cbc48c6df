"""Synthetic data sets: named so, in the shapes of the real ones, and learnable; the digits in colour."""

import pytest
import torch

from orthonorm_paper.data import DATASETS, load_dataset

SHAPES = {
    "mnist-synthetic": ((1, 32, 32), 10),
    "pie-synthetic": ((1, 32, 32), 68),
    "cifar10-synthetic": ((3, 32, 32), 10),
    "cifar100-synthetic": ((3, 32, 32), 100),
    "imagenet-synthetic": ((3, 224, 224), 1000),
}


@pytest.mark.parametrize("name", SHAPES)
def test_a_synthetic_data_set_says_so_and_has_the_shape_of_the_real_one(name: str):
    data = load_dataset(name)
    assert data.name == name
    assert data.description.startswith("synthetic ")
    assert (data.shape, data.classes) == SHAPES[name]
    for x, y in ((data.train_x, data.train_y), (data.test_x, data.test_y)):
        assert len(x) == len(y)
        assert int(y.max()) == min(data.classes, len(y)) - 1
        assert float(x.std()) == pytest.approx(1, abs=0.03)
        assert abs(float(x.mean())) < 0.1


def test_every_synthetic_data_set_is_here():
    assert {name for name in DATASETS if "synthetic" in name} == SHAPES.keys()


def test_synthetic_samples_are_told_apart_by_their_class_and_no_two_are_equal():
    data = load_dataset("cifar10-synthetic")
    means = torch.stack([data.train_x[data.train_y == c].mean(0) for c in range(10)])
    nearest = torch.cdist(data.test_x.flatten(1), means.flatten(1)).argmin(1)
    assert torch.equal(nearest, data.test_y)
    assert len({x.numpy().tobytes() for x in torch.cat([data.train_x, data.test_x])}) == 4096 + 1024


def test_the_digits_in_colour_are_the_grey_ones_at_deviation_1():
    grey, colour = load_dataset("mnist-5k"), load_dataset("mnist-5k-rgb")
    assert colour.name == "mnist-5k-rgb"
    assert colour.shape == (3, 32, 32)
    assert float(colour.train_x.double().std()) == pytest.approx(1, abs=1e-4)
    assert abs(float(colour.train_x.double().mean())) < 1e-5
    for a, b in ((grey.train_x, colour.train_x), (grey.test_x, colour.test_x)):
        assert torch.equal(b[:, 0], b[:, 1])
        assert torch.equal(b[:, 0], b[:, 2])
        factor = b[0, 0].max() / a[0, 0].max()
        torch.testing.assert_close(b[:, 1], a[:, 0] * factor, rtol=1e-5, atol=1e-6)
    assert torch.equal(grey.test_y, colour.test_y)
    assert grey.digest == colour.digest
