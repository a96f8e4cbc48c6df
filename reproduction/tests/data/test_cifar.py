"""CIFAR from tiny files in its own format: read by torchvision's class, broken in every way."""

import hashlib
import pickle
import tarfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.datasets import CIFAR10, CIFAR100

from orthonorm_paper.data import cifar, load_dataset
from orthonorm_paper.data.cifar import load_cifar, tuning_split
from orthonorm_paper.data.dataset import Dataset
from orthonorm_paper.exceptions import UserError

CLASSES = ["cat", "dog", "ship"]
# Two training batches and a test batch; every value of the images is known.
PIXELS = np.random.default_rng(0).integers(0, 256, (9, 3072), dtype=np.uint8)
LABELS = [0, 1, 2, 2, 1, 0, 1, 0, 2]


def batch(rows: slice, **changes: Any) -> dict[str, Any]:
    return {"data": PIXELS[rows], "labels": LABELS[rows], "batch_label": "tiny"} | changes


FILES: dict[str, Any] = {
    "data_batch_1": batch(slice(0, 4)),
    "data_batch_2": batch(slice(4, 6)),
    "test_batch": batch(slice(6, 9)),
    "batches.meta": {"label_names": CLASSES, "num_vis": 3072},
}


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def published(folder: Path, files: dict[str, Any] | None = None, url: str = "http://127.0.0.1:9/none") -> type[CIFAR10]:
    """Write the files as CIFAR's are, and give torchvision's class with their names and sums as the published ones."""
    contents = {name: pickle.dumps(content, protocol=2) for name, content in (FILES | (files or {})).items()}
    base = folder / CIFAR10.base_folder
    base.mkdir(parents=True)
    for name, content in contents.items():
        (base / name).write_bytes(content)

    return reader_of(
        CIFAR10,
        url=url,
        train_list=[[name, md5(contents[name])] for name in ("data_batch_1", "data_batch_2")],
        test_list=[["test_batch", md5(contents["test_batch"])]],
        meta={"filename": "batches.meta", "key": "label_names", "md5": md5(contents["batches.meta"])},
    )


def reader_of(base: type[CIFAR10], **attributes: Any) -> type[CIFAR10]:
    """torchvision's class for other files than the published ones."""
    return type("Tiny", (base,), attributes)


def load(reader: type[CIFAR10], folder: Path, **counts: Any) -> Dataset:
    given: dict[str, Any] = {"classes": 3, "train": 6, "test": 3} | counts
    return load_cifar(reader, "tiny", folder, **given)


def expected(rows: slice) -> torch.Tensor:
    values = torch.from_numpy(PIXELS[rows]).double().view(-1, 3, 32, 32)
    mean = torch.tensor([125.3, 123.0, 113.9], dtype=torch.float64).view(3, 1, 1)
    deviation = torch.tensor([63.0, 62.1, 66.7], dtype=torch.float64).view(3, 1, 1)
    return ((values - mean) / deviation).float()


@pytest.mark.parametrize("inside", [False, True], ids=["folder above", "folder of the batches"])
def test_images_are_normalised_a_channel_and_labels_kept(tmp_path: Path, inside: bool):
    reader = published(tmp_path)
    data = load(reader, tmp_path / reader.base_folder if inside else tmp_path)
    torch.testing.assert_close(data.train_x, expected(slice(0, 6)), rtol=0, atol=1e-6)
    torch.testing.assert_close(data.test_x, expected(slice(6, 9)), rtol=0, atol=1e-6)
    assert data.train_y.tolist() == LABELS[:6]
    assert data.test_y.tolist() == LABELS[6:]
    assert (data.classes, data.shape) == (3, (3, 32, 32))
    assert data.train_x.is_contiguous()


def test_own_statistics_are_those_of_the_training_images(tmp_path: Path):
    reader = published(tmp_path)
    data = load_cifar(reader, "tiny", tmp_path, classes=3, train=6, test=3, statistics=None)
    pixels = PIXELS.reshape(9, 3, -1).astype(np.float64)
    mean, deviation = np.mean(pixels[:6], (0, 2)), np.std(pixels[:6], (0, 2))
    by_hand = (pixels - mean[None, :, None]) / deviation[None, :, None]
    for rows, images in ((slice(0, 6), data.train_x), (slice(6, 9), data.test_x)):
        np.testing.assert_allclose(images.reshape(-1, 3, 1024).numpy(), by_hand[rows], rtol=0, atol=1e-5)


def test_other_values_are_another_digest(tmp_path: Path):
    first = load(published(tmp_path / "a"), tmp_path / "a")
    again = load(published(tmp_path / "b"), tmp_path / "b")
    other = published(tmp_path / "c", {"test_batch": batch(slice(6, 9), labels=[0, 0, 2])})
    assert first.digest == again.digest
    assert first.digest != load(other, tmp_path / "c").digest


def test_fine_labels_are_cifar100s(tmp_path: Path):
    files = {"train": batch(slice(0, 6)), "test": batch(slice(6, 9)), "meta": {"fine_label_names": CLASSES}}
    for name in ("train", "test"):
        files[name] |= {"fine_labels": files[name].pop("labels"), "coarse_labels": [0] * 6}
    base = tmp_path / CIFAR100.base_folder
    base.mkdir()
    contents = {name: pickle.dumps(content, protocol=2) for name, content in files.items()}
    for name, content in contents.items():
        (base / name).write_bytes(content)

    reader = reader_of(
        CIFAR100,
        train_list=[["train", md5(contents["train"])]],
        test_list=[["test", md5(contents["test"])]],
        meta={"filename": "meta", "key": "fine_label_names", "md5": md5(contents["meta"])},
    )
    assert load(reader, tmp_path).train_y.tolist() == LABELS[:6]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Callable[..., type[CIFAR10]]]:
    """Serve the archive on the loopback address; gives a function that makes it and the class that downloads it.

    The archive is cut to `keep` bytes; its published sum is the whole one's.
    """
    folder = tmp_path / "served"
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()

    def archived(keep: int | None = None) -> type[CIFAR10]:
        url = f"http://127.0.0.1:{http.server_port}/{CIFAR10.filename}"
        reader = published(folder / "source", url=url)
        archive = folder / reader.filename
        with tarfile.open(archive, "w:gz") as tar:
            tar.add(folder / "source" / reader.base_folder, reader.base_folder)
        reader.tgz_md5 = md5(archive.read_bytes())
        archive.write_bytes(archive.read_bytes()[:keep])
        return reader

    yield archived
    http.shutdown()
    http.server_close()
    thread.join(timeout=30)


def test_a_missing_data_set_is_downloaded_and_unpacked(tmp_path: Path, server: Callable[..., type[CIFAR10]]):
    data = load(server(), tmp_path / "data")
    torch.testing.assert_close(data.train_x, expected(slice(0, 6)), rtol=0, atol=1e-6)


def test_a_broken_download_is_told_and_leaves_nothing(tmp_path: Path, server: Callable[..., type[CIFAR10]]):
    with pytest.raises(UserError, match=r"cifar-10-python\.tar\.gz .*http://"):
        load(server(keep=-20), tmp_path / "data")
    assert list((tmp_path / "data").iterdir()) == []


def test_an_archive_that_is_there_is_unpacked(tmp_path: Path, server: Callable[..., type[CIFAR10]]):
    reader = server()
    reader.url = "http://127.0.0.1:9/none"
    data = load(reader, tmp_path / "served")
    torch.testing.assert_close(data.test_x, expected(slice(6, 9)), rtol=0, atol=1e-6)


def test_a_data_set_that_cannot_be_downloaded_says_how_to_get_it(tmp_path: Path):
    reader = published(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"Tiny .*data .*--data FOLDER"):
        load(reader, tmp_path / "data")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path: Path, name: str):
    reader = published(tmp_path)
    (tmp_path / reader.base_folder / name).unlink()
    with pytest.raises(UserError, match=rf"{name} is missing.*cifar-10-batches-py"):
        load(reader, tmp_path)


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_named_with_its_sum(tmp_path: Path, name: str):
    reader = published(tmp_path)
    path = tmp_path / reader.base_folder / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match=rf"{name} .*MD5 .*[0-9a-f]{{32}}"):
        load(reader, tmp_path)


OTHER: dict[str, tuple[dict[str, Any], dict[str, int], str]] = {
    "too few to train": ({}, {"train": 7}, "has 6 images and 6 labels to train, expected 7"),
    "too few to test": ({}, {"test": 2}, "has 3 images and 3 labels to test, expected 2"),
    "a label too few": (
        {"test_batch": batch(slice(6, 9), labels=[0, 1])}, {}, "has 3 images and 2 labels to test, expected 3",
    ),
    "other classes": ({}, {"classes": 10}, "names 3 classes, expected 10"),
    "label out of range": (
        {"test_batch": batch(slice(6, 9), labels=[0, 3, 1])}, {}, "holds labels from 0 to 3, expected 0 to 2",
    ),
    "other size": ({"test_batch": batch(slice(6, 9), data=PIXELS[6:9, :3000])}, {}, "holds no CIFAR that torchvision"),
    "no images": ({"test_batch": {"labels": [1]}}, {}, r"holds no CIFAR that torchvision can read \('data'\): remove"),
    "floats": (
        {"data_batch_1": batch(slice(0, 4), data=PIXELS[:4] / 255.0)}, {}, "images of torch.float64, expected unsigned",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHER)
def test_other_contents_are_told(tmp_path: Path, case: str):
    files, counts, message = OTHER[case]
    with pytest.raises(UserError, match=message):
        load(published(tmp_path, files), tmp_path, **counts)


def test_the_published_files_are_asked_for_by_name(tmp_path: Path):
    for name, first in (("cifar10", "data_batch_1"), ("cifar100", "train")):
        reader = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]
        (tmp_path / name / reader.base_folder).mkdir(parents=True)
        with pytest.raises(UserError, match=f"{first} is missing.*{reader.filename}"):
            load_dataset(name, tmp_path / name)


def test_tuning_holds_out_images_to_train_and_never_sees_the_test(tmp_path: Path):
    data = load(published(tmp_path), tmp_path)
    tune = tuning_split(data, 2)
    assert tune.name == "tiny-tune"
    assert (len(tune.train_y), len(tune.test_y)) == (4, 2)

    def images(x: torch.Tensor) -> set[bytes]:
        return {image.numpy().tobytes() for image in x}

    assert images(tune.train_x) | images(tune.test_x) == images(data.train_x)
    label = {image.numpy().tobytes(): int(y) for image, y in zip(data.train_x, data.train_y, strict=True)}
    assert [label[image.numpy().tobytes()] for image in tune.test_x] == tune.test_y.tolist()
    assert torch.equal(tune.test_x, tuning_split(data, 2).test_x)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_rates_are_chosen_on_5000_of_the_50000_training_images(name: str, monkeypatch: pytest.MonkeyPatch):
    x, y = torch.zeros(60_000, 1, 1, 1), torch.zeros(60_000, dtype=torch.int64)
    published = Dataset(name, "synthetic", 10, x[:50_000], y[:50_000], x[50_000:], y[50_000:], "none")
    monkeypatch.setattr(cifar, name, lambda _: published)
    tune = load_dataset(f"{name}-tune", None)
    assert (tune.count, len(tune.test_y)) == (45_000, 5_000)
