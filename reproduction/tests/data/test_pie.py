"""PIE from small files in MATLAB's format."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.io import savemat

from orthonorm_paper.data import load_dataset
from orthonorm_paper.data.dataset import Dataset
from orthonorm_paper.data.pie import load_pie
from orthonorm_paper.exceptions import UserError

RANDOM = np.random.default_rng(0)
FEA = RANDOM.integers(0, 256, (60, 1024), dtype=np.uint8)
GND = (np.arange(60) % 4 + 1).reshape(60, 1).astype(np.uint8)
# No two images are equal, and the first pixel of each is its number.
FEA[:, 0] = np.arange(60)


def put(folder: Path, **changes: Any) -> Path:
    savemat(folder / "PIE_32x32.mat", {"fea": FEA, "gnd": GND} | changes, do_compression=True)
    return folder


def load(folder: Path, *, seed: int = 0, tune: bool = False) -> Dataset:
    return load_pie(folder, tune=tune, seed=seed, images=60, held_out=10, people=4)


def numbers(x: torch.Tensor) -> list[int]:
    """Which images of the file these are, by the first pixel, whatever was subtracted."""
    columns = torch.from_numpy(FEA).float().view(-1, 32, 32).mT / 255
    fingerprints = columns - columns[:, :1, 1:2]
    found = []
    for image in x[:, 0] - x[:, 0, :1, 1:2]:
        distances = (fingerprints - image).abs().amax((1, 2))
        assert distances.min() < 1e-5
        found.append(int(distances.argmin()))
    return found


@pytest.mark.parametrize("kind", [np.uint8, np.float64], ids=["bytes", "doubles"])
def test_every_image_is_in_one_split_with_its_label(tmp_path: Path, kind: type):
    data = load(put(tmp_path, fea=FEA.astype(kind), gnd=GND.astype(kind)))
    train, test = numbers(data.train_x), numbers(data.test_x)
    assert len(test) == 10
    assert sorted(train + test) == list(range(60))
    # Labels of the file count from 1.
    assert data.train_y.tolist() == [i % 4 for i in train]
    assert data.test_y.tolist() == [i % 4 for i in test]
    assert (data.shape, data.classes) == ((1, 32, 32), 4)


def test_each_split_is_divided_by_255_and_less_its_own_mean(tmp_path: Path):
    data = load(put(tmp_path))
    for x in (data.train_x, data.test_x):
        raw = torch.from_numpy(FEA[numbers(x)]).double() / 255
        assert abs(float(x.double().mean())) < 1e-6
        expected = raw.view(-1, 1, 32, 32).mT - raw.mean()
        torch.testing.assert_close(x, expected.float(), rtol=0, atol=1e-6)


def test_the_split_is_random_and_a_function_of_its_seed(tmp_path: Path):
    put(tmp_path)
    first, again, other = (numbers(load(tmp_path, seed=seed).test_x) for seed in (0, 0, 1))
    assert first == again
    assert first != other
    assert first not in (list(range(10)), list(range(50, 60)))


def test_tuning_holds_out_a_tenth_of_the_training_images(tmp_path: Path):
    put(tmp_path)
    data, tune = load(tmp_path), load(tmp_path, tune=True)
    assert tune.name == "pie-tune"
    assert len(tune.test_y) == 5
    assert sorted(numbers(tune.train_x) + numbers(tune.test_x)) == sorted(numbers(data.train_x))
    assert abs(float(tune.test_x.double().mean())) < 1e-6


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "an image too few": (
        {"fea": FEA[1:]},
        r"holds pixels in \(59, 1024\) and 60 labels, expected \(60, 1024\)",
    ),
    "other size": ({"fea": FEA[:, :1000]}, r"pixels in \(60, 1000\)"),
    "a label too few": ({"gnd": GND[1:]}, r"\(60, 1024\) and 59 labels"),
    "labels from 0": ({"gnd": GND - 1}, "holds 4 labels from 0 to 3, expected 1 to 4"),
    "a person missing": ({"gnd": np.minimum(GND, 3)}, "holds 3 labels from 1 to 3, expected 1 to 4"),
    "broken labels": ({"gnd": GND + 0.5}, "holds 4 labels from 1.5 to 4.5"),
    "normalised": ({"fea": FEA / 255.0}, "holds pixels from 0 to 1, expected grey values from 0 to 255"),
    "not a number": ({"fea": np.where(FEA == 7, np.nan, FEA)}, "holds pixels from nan to nan"),
    "not grey": ({"fea": FEA.astype(float) + 10}, "holds pixels from 10 to 265"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_other_contents_are_told(tmp_path: Path, case: str):
    changes, message = BROKEN[case]
    with pytest.raises(UserError, match=rf"PIE_32x32.mat {message}|{message}.*FaceData.html"):
        load(put(tmp_path, **changes))


def test_another_file_is_told_by_what_it_has(tmp_path: Path):
    savemat(tmp_path / "PIE_32x32.mat", {"X": FEA, "fea": FEA})
    with pytest.raises(UserError, match=r"has no 'gnd' \(the labels\), only X, fea"):
        load(tmp_path)


def test_a_missing_file_says_where_to_get_it(tmp_path: Path):
    with pytest.raises(UserError, match=r"PIE_32x32\.mat .*FaceData\.html"):
        load_dataset("pie", tmp_path)


@pytest.mark.parametrize("kept", [0, 60, 200, -7], ids=["empty", "header", "start", "all but 7 bytes"])
def test_a_truncated_file_is_told(tmp_path: Path, kept: int):
    path = put(tmp_path) / "PIE_32x32.mat"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=r"PIE_32x32.mat (is truncated or corrupt|has no 'fea')"):
        load(tmp_path)


def test_a_file_of_another_format_is_told(tmp_path: Path):
    (tmp_path / "PIE_32x32.mat").write_bytes(b"<html>not found</html>" * 20)
    with pytest.raises(UserError, match="is truncated or corrupt, or no MATLAB file"):
        load(tmp_path)


def test_the_real_counts_are_asked_for(tmp_path: Path):
    with pytest.raises(UserError, match=r"expected \(11554, 1024\)"):
        load_dataset("pie-tune", put(tmp_path))
