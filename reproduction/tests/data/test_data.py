"""Data: the order of samples, IDX files good and broken, the split of the 5,000 digits."""

import gzip
from pathlib import Path

import pytest
import torch
from torch import Tensor

from orthonorm_paper.data import Dataset, batch_order, generator, load_dataset
from orthonorm_paper.data.augmentation import flip_crop
from orthonorm_paper.data.idx import read_idx
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.run import Run
from orthonorm_paper.training.loader import EpochLoader


def order(seed: int, epoch: int) -> list[int]:
    return torch.cat(list(batch_order(seed, epoch, n=103, batch_size=10))).tolist()


def test_the_order_is_a_pure_function_of_seed_and_epoch():
    first = order(3, 5)
    torch.rand(7)
    assert order(3, 5) == first
    orders = {tuple(order(seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_an_epoch_sees_each_sample_once_and_drops_the_incomplete_batch():
    batches = list(batch_order(0, 0, n=103, batch_size=10))
    assert [len(batch) for batch in batches] == [10] * 10
    assert len(set(torch.cat(batches).tolist())) == 100


def test_samples_that_one_epoch_drops_another_sees():
    seen = [set(order(0, epoch)) for epoch in range(6)]
    assert set.union(*seen) == set(range(103))


def test_all_of_the_data_may_be_one_batch():
    (batch,) = batch_order(0, 0, n=5, batch_size=5)
    assert sorted(batch.tolist()) == [0, 1, 2, 3, 4]


def test_a_batch_larger_than_the_data_is_refused():
    with pytest.raises(UserError, match="at most the 5 training samples; got 6"):
        next(batch_order(0, 0, n=5, batch_size=6))


def test_processes_share_every_batch(tiny):
    run = tiny(batch_size=16)
    data = load_dataset("tiny")
    whole = list(EpochLoader(run, data))
    shares = [list(EpochLoader(run, data, rank=rank, world=4)) for rank in range(4)]
    for number, (images, labels) in enumerate(whole):
        parts = [share[number] for share in shares]
        assert all(len(part_labels) == 4 for _, part_labels in parts)
        merged = torch.stack([part for part, _ in parts], dim=1).flatten(0, 1)
        assert torch.equal(merged, images)
        assert torch.equal(torch.stack([part for _, part in parts], dim=1).flatten(), labels)


def test_a_loader_continues_where_its_state_was_taken(tiny):
    run = tiny(batch_size=16, augment="flip-crop")
    data = load_dataset("tiny")
    loader = EpochLoader(run, data)
    batches = iter(loader)
    first = [next(batches) for _ in range(2)]
    state = loader.state_dict()
    other = EpochLoader(run, data)
    other.load_state_dict(state)
    rest = list(other)
    whole = list(EpochLoader(run, data))
    assert state == {"batches": 2}
    assert [labels.tolist() for _, labels in [*first, *rest]] == [labels.tolist() for _, labels in whole]
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip([*first, *rest], whole, strict=True))
    assert loader.state_dict() == {"batches": 2}
    list(batches)
    assert loader.state_dict() == {"batches": 0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"augment": "cutout"}, "augment must be one of none, flip-crop; got 'cutout'"),
        ({"batch_size": 61}, "at most the 60 training samples of tiny; got 61"),
    ],
)
def test_a_loader_refuses_what_it_cannot_do(tiny, change: dict[str, object], message: str):
    with pytest.raises(UserError, match=message):
        EpochLoader(tiny(**change), load_dataset("tiny"))


def test_a_batch_that_the_processes_cannot_share_is_refused(tiny):
    with pytest.raises(UserError, match="16 is no multiple of the 3 processes"):
        EpochLoader(tiny(), load_dataset("tiny"), world=3)


def crops(image: Tensor) -> list[Tensor]:
    """Every crop of the reflected image, mirrored or not: the literal definition."""
    padded = torch.nn.functional.pad(image, (4, 4, 4, 4), mode="reflect")
    height, width = image.shape[-2:]
    found = [padded[..., y : y + height, x : x + width] for y in range(9) for x in range(9)]
    return found + [crop.flip(-1) for crop in found]


def test_augmentation_gives_crops_of_the_reflected_image_and_its_mirror():
    images = torch.arange(40 * 3 * 10 * 12.0).reshape(40, 3, 10, 12)
    result = flip_crop(images, generator("augment", 1))
    index = []
    for image, cut in zip(images, result, strict=True):
        hits = [i for i, candidate in enumerate(crops(image)) if torch.equal(candidate, cut)]
        assert hits
        index.append(hits[0])
    # Every kind occurs among 40: mirrored and not, many offsets.
    assert {i // 81 for i in index} == {0, 1}
    assert len(set(index)) > 25
    assert torch.equal(flip_crop(images, generator("augment", 1)), result)
    assert not torch.equal(flip_crop(images, generator("augment", 2)), result)


def test_half_of_the_images_are_mirrored():
    rising = torch.arange(12.0).expand(4000, 1, 12, 12)
    cut = flip_crop(rising, generator("augment", 1))
    mirrored = cut[..., 6] < cut[..., 5]  # no border reaches the middle
    assert mirrored.float().mean().item() == pytest.approx(0.5, abs=4 * 0.5 / 4000**0.5)


def test_the_five_thousand_digits_are_split_evenly_and_centred():
    data = load_dataset("mnist-5k")
    assert data.shape == (1, 32, 32)
    assert data.train_y.bincount().tolist() == [400] * 10
    assert data.test_y.bincount().tolist() == [100] * 10
    # The mean is one number: what is left of it is rounding, and black is one value everywhere.
    assert abs(float(data.train_x.double().mean())) < 1e-6
    black = float(data.train_x.min())
    assert float(data.train_x.max()) - black == pytest.approx(1.0, abs=1e-6)
    assert (data.test_x[:, :, :2] == black).all()
    assert (data.train_x[..., -2:] == black).all()


def test_no_digit_is_in_both_parts():
    data = load_dataset("mnist-5k")
    train = {image.numpy().tobytes() for image in data.train_x}
    assert len(train) == 4000
    assert not any(image.numpy().tobytes() in train for image in data.test_x)


def idx(values: Tensor, code: int = 8) -> bytes:
    head = bytes([0, 0, code, values.dim()]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    return head + values.to(torch.uint8).numpy().tobytes()


IMAGES = torch.arange(3 * 28 * 28).reshape(3, 28, 28) % 251
LABELS = torch.tensor([7, 0, 9])
FILES = {
    "train-images-idx3-ubyte": idx(IMAGES),
    "train-labels-idx1-ubyte": idx(LABELS),
    "t10k-images-idx3-ubyte": idx(IMAGES[:2]),
    "t10k-labels-idx1-ubyte": idx(LABELS[:2]),
}


def put(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("inside", ["", "MNIST/raw"], ids=["the folder itself", "torchvision's place"])
@pytest.mark.parametrize("gzipped", [False, True], ids=["plain", "gzipped"])
def test_mnist_is_read_from_a_folder(tmp_path: Path, inside: str, gzipped: bool):
    files = {f"{n}.gz": gzip.compress(c) for n, c in FILES.items()} if gzipped else FILES
    put(tmp_path / inside, files)
    data = load_dataset("mnist", tmp_path)
    mean = (IMAGES.double().sum() / 255 / (3 * 32 * 32)).float()
    expected = torch.zeros(3, 1, 32, 32)
    expected[:, 0, 2:-2, 2:-2] = IMAGES / 255
    torch.testing.assert_close(data.train_x, expected - mean, rtol=0, atol=1e-6)
    torch.testing.assert_close(data.test_x, (expected - mean)[:2], rtol=0, atol=1e-6)
    assert data.train_y.tolist() == [7, 0, 9]
    assert data.test_y.tolist() == [7, 0]


IMAGE_FILE = "train-images-idx3-ubyte"
BROKEN: list[tuple[str, str, bytes | None, str]] = [
    ("missing", IMAGE_FILE, None, r"train-images-idx3-ubyte \(or .*gz\) is missing: put the four IDX files"),
    ("empty", IMAGE_FILE, b"", "is not an IDX file: it begins with nothing"),
    ("other format", IMAGE_FILE, b"<html>", "is not an IDX file: it begins with 3c68746d"),
    ("truncated", IMAGE_FILE, FILES[IMAGE_FILE][:-1], r"announces \[3, 28, 28\] values, and 2351 bytes follow"),
    ("too long", IMAGE_FILE, FILES[IMAGE_FILE] + b"x", "2353 bytes follow: get it again"),
    ("header only", IMAGE_FILE, FILES[IMAGE_FILE][:9], "truncated or corrupt"),
    ("labels as images", IMAGE_FILE, idx(LABELS), "type 8 in 1 dimensions, expected unsigned bytes"),
    ("other type", IMAGE_FILE, idx(IMAGES, code=13), "type 13 in 3 dimensions"),
    ("other size", IMAGE_FILE, idx(IMAGES[:, :20]), r"images of \(20, 28\), expected \(28, 28\)"),
    ("label 10", "train-labels-idx1-ubyte", idx(LABELS + 1), "holds the label 10, expected 0 to 9"),
    ("counts differ", "train-labels-idx1-ubyte", idx(LABELS[:2]), "3 images for 2 labels"),
]


@pytest.mark.parametrize(("name", "content", "message"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_mnist_file_is_named_with_what_was_expected(
    tmp_path: Path, name: str, content: bytes | None, message: str
):
    put(tmp_path, FILES)
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        load_dataset("mnist", tmp_path)


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(FILES[IMAGE_FILE])[:-9]], ids=["other", "truncated"])
def test_a_broken_gzip_file_is_named(tmp_path: Path, content: bytes):
    path = put(tmp_path, {"images.gz": content}) / "images.gz"
    with pytest.raises(UserError, match=r"images.gz is not a whole gzip file"):
        read_idx(path, 3)


def test_an_unknown_data_set_lists_the_known_ones():
    with pytest.raises(UserError, match=r"dataset must be one of mnist-5k, .*; got 'imagenet'"):
        load_dataset("imagenet")


def test_each_batch_and_each_epoch_is_augmented_again():
    # Of equal images, only what is drawn tells two batches apart.
    image = torch.arange(32.0 * 32).view(1, 1, 32, 32)
    images, labels = image.expand(64, -1, -1, -1), torch.zeros(64, dtype=torch.long)
    data = Dataset("equal", "equal images", 2, images, labels, images, labels, "")
    run = Run(experiment="x", dataset="equal", model="mlp", method="plain", lr=0.1, epochs=2, batch_size=32,
              augment="flip-crop")  # fmt: skip
    loader = EpochLoader(run, data)
    drawn = []
    for loader.epoch in range(2):
        drawn += [images for images, _ in loader]
    assert len(drawn) == 4
    for i, first in enumerate(drawn):
        assert all(not torch.equal(first, other) for other in drawn[:i])
    assert all(torch.equal(*pair) for pair in zip(drawn[2:], (images for images, _ in loader), strict=True))
