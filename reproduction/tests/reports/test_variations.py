"""Reports of variations: each is shown as the experiment that it varies, under its own name and at its own size."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from orthonorm_paper.experiments import experiment
from orthonorm_paper.experiments.derived.variation import at_precision, varied
from orthonorm_paper.records.files import Record, write_record
from orthonorm_paper.reports.publish import write_report
from paper_support.recorded import changed, record
from paper_support.recorded_tables import as_table_1_says, errors_record

# What the command line may add to a name, in its order.
ENDINGS = ("bf16-mixed", "epochs2", "64-true-lr0.1_0.5-epochs2-seeds2")


@pytest.fixture(autouse=True)
def blank_pictures(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Figure, "savefig", lambda _, path, **__: path.write_bytes(b""))


def headline(name: str) -> list[Record]:
    return [
        record(method, 0.1, (2.3, loss), seed=seed, depth=8, experiment=name)
        for method, loss in (("plain-he", 0.5), ("OLM-balanced", 0.1))
        for seed in range(2)
    ]


def sequences(name: str) -> list[Record]:
    """Two seeds of an RNN by two methods."""
    found = []
    for method, loss in (("recurrent-torch", 0.5), ("recurrent-OLM", 0.1)):
        for seed in range(2):
            one = record(method, 0.01, (2.0, loss), seed=seed, experiment=name)
            given: dict[str, Any] = {"model": "rnn", "model_args": {"width": 64}, "optimizer": "adam"}
            run = dataclasses.replace(one.run, dataset="copying-10" if "copying" in name else "mnist-5k", **given)
            found.append(changed(one, id=run.id, run=run.to_json()))
    return found


def vgg(name: str) -> list[Record]:
    return as_table_1_says(name, dataset="cifar10-synthetic" if "synthetic" in name else "cifar10")


def mnist(name: str) -> list[Record]:
    return [record(method, 0.1, seed=seed, experiment=name) for method in ("plain", "OLM") for seed in range(5)]


def imagenet(name: str) -> list[Record]:
    fields: dict[str, Any] = {"model": "alexnet", "dataset": "imagenet"}
    return [errors_record(name, method, (60.0, 45.0), top5=(40.0, 20.0), **fields) for method in ("plain", "OLM")]


BASES: dict[str, Callable[[str], list[Record]]] = {
    "headline": headline,
    "ablation-mlp-5k": headline,
    "copying": sequences,
    "rows-5k": sequences,
    "vgg": vgg,
    "vgg-5k": vgg,
    "vgg-synthetic": vgg,
    "omdsm-5k": mnist,
    "omdsm-synthetic": mnist,
    "imagenet-alexnet": imagenet,
    "demo": mnist,
}


def report(name: str, base: str, folder: Path) -> str:
    for one in BASES[base](name):
        write_record(folder / name, one)
    return write_report(name, folder / name, folder / "out")[0].read_text()


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("base", BASES)
def test_a_variation_is_reported_as_what_it_varies(base: str, ending: str, tmp_path: Path):
    name = f"{base}-{ending}"
    text = report(name, base, tmp_path)
    assert base == "demo" or text.startswith(f"# {name}: ")


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("base", ["vgg-synthetic", "omdsm-synthetic"])
def test_a_synthetic_variation_says_so_and_is_not_judged(base: str, ending: str, tmp_path: Path):
    text = report(f"{base}-{ending}", base, tmp_path)
    assert "No claim of the paper is judged on synthetic data." in text
    assert "reduced" not in text


@pytest.mark.parametrize("base", ["vgg", "imagenet-alexnet"])
def test_a_variation_is_of_the_papers_size_only_where_the_precision_alone_is_another(base: str, tmp_path: Path):
    assert "at a reduced size" not in report(f"{base}-bf16-mixed", base, tmp_path / "precision")
    assert "at a reduced size" in report(f"{base}-epochs2", base, tmp_path / "epochs")


def test_seeds_of_a_sequence_variation_are_its_own(tmp_path: Path):
    assert "0.1 against 0.5; 0.1 against 0.5" in report("copying-seeds2", "copying", tmp_path)


def test_the_names_are_those_that_the_command_line_gives():
    one = experiment("vgg-5k")
    long = varied(at_precision(one, "64-true"), (0.1, 0.5), 2, 2)
    names = [entry.name for entry in (at_precision(one, "bf16-mixed"), varied(one, epochs=2), long)]
    assert names == [f"vgg-5k-{ending}" for ending in ENDINGS]
