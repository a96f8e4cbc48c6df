"""ImageNet from small folders of JPEG files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch.utils.data import DataLoader

from orthonorm_paper.data.colour import Lighting
from orthonorm_paper.data.imagenet import ImageFolders, load_imagenet
from orthonorm_paper.exceptions import UserError

CLASSES = ("n01440764", "n01443537", "n01484850")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three classes, two training images each and one to test, of various sizes, one of them grey."""
    root = tmp_path_factory.mktemp("imagenet")
    fill(root)
    return root


def fill(root: Path) -> Path:
    random = np.random.default_rng(0)
    for part, names in (("train", ("a", "b")), ("val", ("c",))):
        for number, wnid in enumerate(CLASSES):
            (root / part / wnid).mkdir(parents=True)
            for index, name in enumerate(names):
                size = (40 + 9 * number, 50 + 5 * index)
                shape = size if (part, number, index) == ("train", 1, 1) else (*size, 3)
                Image.fromarray(random.integers(0, 256, shape, dtype=np.uint8)).save(
                    root / part / wnid / f"{name}.JPEG"
                )
    return root


def load(root: Path, **changes: Any) -> ImageFolders:
    given: dict[str, Any] = {"classes": 3, "train": 6, "test": 3, "side": 32} | changes
    return load_imagenet(root, **given)


def test_images_and_labels_of_both_parts(folder: Path):
    data = load(folder)
    assert (len(data.train), len(data.test), data.classes, data.shape) == (6, 3, 3, (3, 32, 32))
    assert [data.train[0, 0, i][1] for i in range(6)] == [0, 0, 1, 1, 2, 2]
    for i in range(6):
        image, _ = data.train[0, 0, i]
        assert image.shape == (3, 32, 32)
        assert image.dtype == torch.float32


def test_the_test_crop_is_torchvisions_own(folder: Path):
    data = load(folder, side=224)
    preset = torchvision.models.ResNet34_Weights.IMAGENET1K_V1.transforms()
    for i, wnid in enumerate(CLASSES):
        with Image.open(folder / "val" / wnid / "c.JPEG") as file:
            torch.testing.assert_close(data.test[0, 0, i][0], preset(file.convert("RGB")), rtol=0, atol=1e-5)


def test_a_random_crop_is_a_function_of_seed_epoch_and_index(folder: Path):
    def image(seed: int, epoch: int) -> torch.Tensor:
        torch.rand(3)
        return load(folder).train[seed, epoch, 2][0]

    assert torch.equal(image(0, 1), image(0, 1))
    assert not torch.equal(image(0, 1), image(0, 2))
    assert not torch.equal(image(0, 1), image(1, 1))
    mirrored = [torch.equal(image(0, epoch), image(0, epoch).flip(-1)) for epoch in range(3)]
    assert mirrored == [False] * 3


def test_random_crops_are_parts_of_the_image_mirrored_half_of_the_time(tmp_path: Path):
    # The red grows to the right and the green downwards: a crop tells where it was cut and whether it was mirrored.
    columns, rows = np.meshgrid(np.arange(128), np.arange(128))
    picture = np.stack([2 * columns, 2 * rows, np.zeros_like(rows)], 2).astype(np.uint8)
    for part, count in (("train", 1), ("val", 1)):
        (tmp_path / part / "n0").mkdir(parents=True)
        Image.fromarray(picture).save(tmp_path / part / "n0" / f"{count}.JPEG", quality=100)
    data = load(tmp_path, classes=1, train=1, test=1)
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    mirrored, areas = 0, []
    for epoch in range(60):
        pixels = data.train[0, epoch, 0][0] * deviation.view(3, 1, 1) + mean.view(3, 1, 1)
        across = float(pixels[0, :, -1].mean() - pixels[0, :, 0].mean()) * 255 / 2 * 32 / 31
        down = float(pixels[1, -1].mean() - pixels[1, 0].mean()) * 255 / 2 * 32 / 31
        mirrored += across < 0
        assert down > 0
        areas.append(abs(across) * down / 128**2)
    assert 18 <= mirrored <= 42
    assert 0.04 < min(areas) < 0.3
    assert 0.6 < max(areas) < 1.1


def test_a_light_adds_one_colour_with_the_covariance_of_imagenets_pixels():
    torch.manual_seed(0)
    image = torch.rand(3, 4, 5)
    lights = torch.stack([Lighting()(image) - image for _ in range(20_000)])
    assert float(lights.std((2, 3)).max()) < 1e-6
    # Krizhevsky et al.: the eigenvectors times the eigenvalues, each times a normal number of standard deviation 0.1.
    vectors = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
    covariance = vectors @ np.diag((0.1 * np.array([0.2175, 0.0188, 0.0045])) ** 2) @ vectors.T
    found = np.cov(lights[:, :, 0, 0].T.numpy())
    np.testing.assert_allclose(found, covariance, rtol=0, atol=5e-6)


def test_with_colours_the_training_images_change_and_the_others_do_not(folder: Path):
    plain, colour = load(folder), load(folder, colour=True)
    assert (plain.name, colour.name) == ("imagenet", "imagenet-colour")
    assert torch.equal(plain.test[0, 0, 1][0], colour.test[0, 0, 1][0])
    assert torch.equal(colour.train[0, 3, 1][0], colour.train[0, 3, 1][0])
    # A grey image: a factor on each channel leaves it grey, a light adds another number to each.
    path = folder.parent / "grey"
    for part in ("train", "val"):
        (path / part / "n0").mkdir(parents=True)
        Image.fromarray(np.full((64, 64, 3), 128, dtype=np.uint8)).save(path / part / "n0" / "a.JPEG", quality=100)
    data = load(path, classes=1, train=1, test=1, colour=True)
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    images = torch.stack([data.train[0, epoch, 0][0] for epoch in range(40)])
    pixels = images * deviation.view(3, 1, 1) + mean.view(3, 1, 1)
    means = pixels.mean((1, 2, 3)) / (128 / 255)
    # Brightness takes a factor between 0.6 and 1.4, to which a light adds some hundredths.
    assert 0.5 < float(means.min()) < 0.75
    assert 1.25 < float(means.max()) < 1.5
    assert float(pixels.std((2, 3)).max()) < 0.01


def test_reading_leaves_torchs_generator_alone(folder: Path):
    data = load(folder)
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    data.train[0, 0, 0]
    assert torch.equal(torch.rand(2), expected)


def test_other_processes_read_the_same(folder: Path):
    data = load(folder)
    keys = [(0, 3, i) for i in (4, 0, 5, 1)]
    loader = DataLoader(data.train, batch_size=2, sampler=keys, num_workers=1, multiprocessing_context="fork")
    images = torch.cat([images for images, _ in loader])
    assert torch.equal(images, torch.stack([data.train[key][0] for key in keys]))


def test_the_digest_is_of_the_names(tmp_path: Path, folder: Path):
    first = load(folder).digest
    fill(tmp_path)
    assert load(tmp_path).digest == first
    path = tmp_path / "train" / CLASSES[0] / "a.JPEG"
    path.rename(path.with_name("z.JPEG"))
    assert load(tmp_path).digest != first


@pytest.mark.parametrize("kept", [0, 30, 300], ids=["empty", "header", "part"])
def test_a_truncated_image_is_named_when_it_is_read(tmp_path: Path, kept: int):
    fill(tmp_path)
    path = tmp_path / "train" / CLASSES[1] / "a.JPEG"
    path.write_bytes(path.read_bytes()[:kept])
    data = load(tmp_path)
    with pytest.raises(UserError, match=r"n01443537/a\.JPEG .*again"):
        data.train[0, 0, 2]


def test_a_missing_part_says_how_to_get_it(tmp_path: Path):
    with pytest.raises(UserError, match=r"train .*ILSVRC2012_img_train\.tar .*split='train'"):
        load(tmp_path)
    (fill(tmp_path) / "val").rename(tmp_path / "test")
    with pytest.raises(UserError, match=r"val .*ILSVRC2012_img_val\.tar .*ImageNet\('.*', split='val'\)"):
        load(tmp_path)


def test_images_that_are_not_sorted_by_class_are_told(tmp_path: Path):
    fill(tmp_path)
    for path in list((tmp_path / "val").glob("*/*")):
        path.rename(tmp_path / "val" / f"{path.parent.name}.JPEG")
        path.parent.rmdir()
    with pytest.raises(UserError, match=r"val .*a folder a class"):
        load(tmp_path)


def test_a_class_without_images_is_told(tmp_path: Path):
    (fill(tmp_path) / "train" / CLASSES[2] / "a.JPEG").unlink()
    (tmp_path / "train" / CLASSES[2] / "b.JPEG").unlink()
    with pytest.raises(UserError, match=r"train is not a folder of images .*n01484850"):
        load(tmp_path)


def test_other_counts_are_told(tmp_path: Path, folder: Path):
    with pytest.raises(UserError, match=r"train .*\b6 .*\b3 .*1,281,167 .*1000.*ILSVRC"):
        load_imagenet(folder)
    with pytest.raises(UserError, match=r"val .*\b3 .*\b3 .*\b4 .*\b3"):
        load(folder, test=4)
    (fill(tmp_path) / "val" / CLASSES[0]).rename(tmp_path / "val" / "n9")
    with pytest.raises(UserError, match=r"train and val .*n01440764"):
        load(tmp_path)
