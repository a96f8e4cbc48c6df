"""Tiny data sets in the files' real formats, read by the real loaders; random pixels, so synthetic."""

import dataclasses
import hashlib
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat
from torchvision.datasets import CIFAR10, CIFAR100

from orthonorm_paper import data
from orthonorm_paper.data.cifar import load_cifar, tuning_split
from orthonorm_paper.data.dataset import Dataset
from orthonorm_paper.data.mnist import mnist_5k, mnist_5k_rgb
from orthonorm_paper.data.pie import load_pie

RANDOM = np.random.default_rng(0)
TRAIN, TEST, CLASSES = 20, 6, 3


def write_files(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Write MNIST, CIFAR and PIE into a folder, and let the table of data sets expect their sizes."""
    _write_mnist(folder)
    for reader, name, train, test in (
        (CIFAR10, "cifar10", "data_batch_1", "test_batch"),
        (CIFAR100, "cifar100", "train", "test"),
    ):
        tiny = _write_cifar(folder, reader, train, test)
        load = partial(load_cifar, tiny, name, classes=CLASSES, train=TRAIN, test=TEST)
        patch.setitem(data.DATASETS, name, load)
        patch.setitem(data.DATASETS, f"{name}-tune", partial(_tune, load))
        if name == "cifar100":
            own = partial(load_cifar, tiny, f"{name}-own", classes=CLASSES, train=TRAIN, test=TEST, statistics=None)
            patch.setitem(data.DATASETS, f"{name}-own", own)
    pixels = RANDOM.integers(0, 256, (TRAIN + TEST, 1024), dtype=np.uint8)
    people = (np.arange(TRAIN + TEST) % CLASSES + 1).reshape(-1, 1)
    savemat(folder / "PIE_32x32.mat", {"fea": pixels, "gnd": people})
    sizes = {"images": TRAIN + TEST, "held_out": TEST, "people": CLASSES}
    for name in ("pie", "pie-tune"):
        patch.setitem(data.DATASETS, name, partial(load_pie, tune=name == "pie-tune", **sizes))
    for name, read in (("mnist-5k", mnist_5k), ("mnist-5k-rgb", mnist_5k_rgb)):
        patch.setitem(data.DATASETS, name, partial(_cut, read(None)))
    return folder


def _write_mnist(folder: Path) -> None:
    for part, count in (("train", TRAIN), ("t10k", TEST)):
        images = RANDOM.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        for name, values in (("images-idx3", images), ("labels-idx1", np.arange(count, dtype=np.uint8) % 10)):
            head = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
            (folder / f"{part}-{name}-ubyte").write_bytes(head + values.tobytes())


def _reader(base: type[CIFAR10], attributes: dict[str, Any]) -> type[CIFAR10]:
    return type("Tiny", (base,), attributes)


def _write_cifar(folder: Path, reader: type[CIFAR10], train: str, test: str) -> type[CIFAR10]:
    key = "labels" if reader is CIFAR10 else "fine_labels"
    meta = reader.meta
    contents: dict[str, dict[str, object]] = {meta["filename"]: {meta["key"]: [f"class {i}" for i in range(CLASSES)]}}
    for name, count in ((train, TRAIN), (test, TEST)):
        pixels = RANDOM.integers(0, 256, (count, 3072), dtype=np.uint8)
        contents[name] = {"data": pixels, key: [i % CLASSES for i in range(count)]}
    (folder / reader.base_folder).mkdir()
    sums = {}
    for name, content in contents.items():
        text = pickle.dumps(content, protocol=2)
        (folder / reader.base_folder / name).write_bytes(text)
        sums[name] = hashlib.md5(text).hexdigest()
    attributes: dict[str, object] = {
        "train_list": [[train, sums[train]]],
        "test_list": [[test, sums[test]]],
        "meta": meta | {"md5": sums[meta["filename"]]},
    }
    return _reader(reader, attributes)


def _tune(load: partial[Dataset], folder: Path | None) -> Dataset:
    return tuning_split(load(folder), TEST)


def _cut(whole: Dataset, folder: Path | None) -> Dataset:
    parts = {"train_x": TRAIN, "train_y": TRAIN, "test_x": TEST, "test_y": TEST}
    return dataclasses.replace(whole, **{name: getattr(whole, name)[:count] for name, count in parts.items()})
