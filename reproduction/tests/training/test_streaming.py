"""Data sets of files: the same batches whoever reads them, and a run that continues reads only what is left."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from orthonorm_paper.data import batch_order, load_data
from orthonorm_paper.data.imagenet import ImageFolders, load_image_folder
from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.files import same
from orthonorm_paper.records.run import Run
from orthonorm_paper.training.execute import execute
from orthonorm_paper.training.settings import Settings
from orthonorm_paper.training.streaming import StreamingLoader

RUN = Run(
    experiment="tests",
    dataset="image-folder",
    model="mlp",
    model_args={"hidden_layers": 1, "width": 4, "dropout": 0.3},
    method="plain-he",
    lr=1e-4,
    momentum=0.9,
    epochs=2,
    batch_size=4,
    seed=5,
)


def small(pictures: Path) -> ImageFolders:
    return load_image_folder(pictures, side=16)


def listed(loader: StreamingLoader) -> list[tuple[torch.Tensor, list[int]]]:
    return [(images, labels.tolist()) for images, labels in loader]


def assert_equal(found: list[tuple[torch.Tensor, list[int]]], expected: list[tuple[torch.Tensor, list[int]]]) -> None:
    assert [labels for _, labels in found] == [labels for _, labels in expected]
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(found, expected, strict=True))


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_are_a_function_of_seed_epoch_and_index(pictures: Path, workers: int):
    data = small(pictures)
    loader = StreamingLoader(RUN, data, workers=workers)
    assert len(loader) == 3
    for epoch in (3, 1):
        loader.epoch = epoch
        order = batch_order(5, epoch, 14, 4)
        items = [[data.train[5, epoch, index] for index in indices.tolist()] for indices in order]
        assert_equal(
            listed(loader), [(torch.stack([x for x, _ in batch]), [label for _, label in batch]) for batch in items]
        )
    loader.close()


def test_a_loader_continues_without_reading_what_was_given(pictures: Path, monkeypatch: pytest.MonkeyPatch):
    whole = listed(StreamingLoader(RUN, small(pictures)))
    first = StreamingLoader(RUN, small(pictures), workers=1)
    next(batches := iter(first))
    # Read ahead by another process, and not given yet: not counted.
    assert first.state_dict() == {"batches": 1}
    data = small(pictures)
    read = []
    original = data.train.folder.loader
    monkeypatch.setattr(data.train.folder, "loader", lambda path: read.append(path) or original(path))
    other = StreamingLoader(RUN, data)
    other.load_state_dict(first.state_dict())
    assert_equal(listed(other), whole[1:])
    assert len(read) == 8
    assert other.state_dict() == {"batches": 0}
    assert_equal([(images, labels.tolist()) for images, labels in batches], whole[1:])
    first.close()


def test_processes_share_every_batch(pictures: Path):
    whole = listed(StreamingLoader(RUN, small(pictures)))
    shares = [listed(StreamingLoader(RUN, small(pictures), rank=rank, world=2)) for rank in range(2)]
    joined = [
        (torch.stack([a, b], 1).flatten(0, 1), [label for pair in zip(x, y, strict=True) for label in pair])
        for (a, x), (b, y) in zip(*shares, strict=True)
    ]
    assert_equal(joined, whole)
    # Seven images in blocks of four: two and two, then two and one.
    tests = [list(StreamingLoader(RUN, small(pictures), rank=rank, world=2).test_batches()) for rank in range(2)]
    assert [[labels.tolist() for _, labels in part] for part in tests] == [[[0, 2], [4, 6]], [[1, 3], [5]]]
    # Where a process has no share, it has an image that is not counted.
    (_, (images, labels)) = StreamingLoader(RUN, small(pictures), rank=3, world=4).test_batches()
    assert (len(images), len(labels)) == (1, 0)


def test_a_run_on_files_ends_as_if_it_had_not_stopped_whoever_reads(pictures: Path, tmp_path: Path):
    settings = Settings(device="cpu", data=pictures, workers=0)
    whole = execute(RUN, tmp_path / "whole", settings)
    for step in (1, 4):
        changes: dict[str, Any] = {"stop_at_step": step, "workers": step % 3}
        stopped = execute(RUN, tmp_path / "cut", dataclasses.replace(settings, **changes))
        assert stopped.outcome_text == f"stopped at step {step}"
    continued = execute(RUN, tmp_path / "cut", dataclasses.replace(settings, workers=2))
    assert same(continued, whole)
    assert continued.end.resumed == 2
    assert whole.header.data.description == "images of pictures, 7 classes, 14 to train and 7 to test"
    assert [line.step for line in whole.epochs] == [3, 6]
    last = whole.epochs[-1]
    assert 0 <= whole.final("test_top5_error") <= whole.final("test_error") <= 100
    assert list(last.to_json())[-4:] == ["test_error", "orthogonality_error", "seconds", "test_top5_error"]


def test_the_top_five_error_is_that_of_the_five_largest_logits(pictures: Path, tmp_path: Path):
    run = dataclasses.replace(RUN, lr=0.0, momentum=0.0, epochs=1, seed=8)
    record = execute(run, tmp_path, Settings(device="cpu", data=pictures, workers=0))
    from orthonorm_paper.models import build_model

    data = load_data("image-folder", pictures)
    network = build_model(
        "mlp", dict(run.model_args), shape=(3, 224, 224), classes=7, start="he", seed=8
    ).eval()  # fmt: skip
    images = torch.stack([data.test[0, 0, i][0] for i in range(7)])  # pyright: ignore[reportAttributeAccessIssue]
    ranks = (network(images).argsort(1, descending=True) == torch.arange(7)[:, None]).nonzero()[:, 1]
    assert record.final("test_top5_error") == pytest.approx(100 * float((ranks > 4).float().mean()))
    assert record.epochs[0].test_error == pytest.approx(100 * float((ranks > 0).float().mean()))


def test_an_image_that_cannot_be_read_by_another_process_is_one_line(pictures: Path, tmp_path: Path):
    (pictures / "train" / "class3" / "a.jpg").write_bytes(b"")
    with pytest.raises(UserError, match=r"^\S*train/class3/a\.jpg .*again$"):
        execute(RUN, tmp_path / "out", Settings(device="cpu", data=pictures, workers=1))


def test_a_loader_refuses_what_it_cannot_do(pictures: Path):
    for changes, message in (
        (
            {"augment": "flip-crop"},
            "the images of image-folder are cropped as they are read, so augment must be none; got 'flip-crop'",
        ),
        ({"batch_size": 15}, "batch_size must be at most the 14 training samples of image-folder; got 15"),
    ):
        with pytest.raises(UserError, match=message):
            StreamingLoader(dataclasses.replace(RUN, **changes), small(pictures))
    with pytest.raises(UserError, match=r"batch_size 4\b.*\b3 processes"):
        StreamingLoader(RUN, small(pictures), world=3)


def test_a_folder_of_images_needs_two_parts_of_the_same_classes(pictures: Path):
    (pictures / "val" / "class6").rename(pictures / "val" / "other")
    with pytest.raises(UserError, match=r"train and val .*class6"):
        small(pictures)
    with pytest.raises(UserError, match=r"nowhere/train .*/nowhere/train/CLASS"):
        load_image_folder(Path("/nowhere"))
