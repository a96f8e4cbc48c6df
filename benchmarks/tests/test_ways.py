"""The benchmark of all ways: each trains, keeps what it promises, and a record is not made twice."""

import gzip
import json
import math
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import orthonorm as on
from benchmarks.ways import guidance, page, runs, summary, times
from benchmarks.ways.guidance import OURS
from benchmarks.ways.problems import PROBLEMS, Task
from benchmarks.ways.ways import WAYS
from orthonorm_paper.reports.claims.rule import lower

FREE = {
    "plain, orthogonal initialization",
    "plain, He initialization",
    "soft penalty",
    "torch Muon, free weights",
    "Landing",
}


def tiny(problem: str) -> Task:
    """A few random images of the data set's shape."""
    generator = torch.Generator().manual_seed(0)
    shape = (24, 3 if problem == "vgg-5k" else 1, 32, 32)
    x, y = torch.randn(shape, generator=generator), torch.arange(24) % 10
    return Task(x, y, x, y, 10)


# Exponential maps of whole matrices take seconds each where the matrices are large.
PAIRS = [
    pytest.param(way, problem, marks=[pytest.mark.nightly] if exponential and problem != "rows-5k" else [])
    for way in WAYS
    for exponential in [way in {"torch matrix_exp", "geotorch"}]
    for problem in PROBLEMS
]


@pytest.mark.parametrize(("way", "problem"), PAIRS)
def test_every_way_trains_every_problem(way: str, problem: str):
    short = PROBLEMS[problem]._replace(epochs=2, batch_size=12)
    lines = runs.train(runs.Run(problem, way, 0.01, 0), short, tiny(problem))
    assert len(lines) == 2
    assert lines[0]["train_loss"] != lines[1]["train_loss"]
    if way not in {*FREE, OURS}:
        assert lines[-1]["orthogonality_error"] < 1e-4


@pytest.mark.parametrize("name", PROBLEMS)
def test_centred_rows_are_orthonormal_within_groups_of_at_most_64(name: str):
    problem = PROBLEMS[name]
    model = problem.make(tiny(name), 0)
    WAYS[OURS](model, problem.targets(model), 0.01)
    rows = on.inspect(model).layers
    assert len(rows) == len(problem.targets(problem.make(tiny(name), 0)))
    assert all(row.error < 1e-5 and max(row.groups) <= 64 for row in rows)
    assert all(p.center for p in model.modules() if isinstance(p, on.OrthogonalWeightNorm))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_steps_every_parameter(way: str):
    problem = PROBLEMS["rows-5k"]
    model = problem.make(tiny("rows-5k"), 0)
    training = WAYS[way](model, problem.targets(model), 0.01)
    stepped = {id(p) for optimizer in training.optimizers for group in optimizer.param_groups for p in group["params"]}
    assert stepped == {id(p) for p in model.parameters()}


def test_a_record_is_read_and_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made: list[runs.Run] = []

    def train(run: runs.Run, *_: Any) -> list[dict[str, float]]:
        made.append(run)
        return [{"train_loss": 0.5}]

    monkeypatch.setattr(runs, "train", train)
    run = runs.Run("mlp8", "orthonorm", 0.1, 0)
    first = runs.finish(run, tmp_path, tiny("mlp8"))
    assert runs.finish(run, tmp_path, tiny("mlp8")) == first
    assert made == [run]


def run_all(loss: Callable[[float], float]) -> list[dict[str, Any]]:
    """The records of a way whose training loss depends on the learning rate alone."""
    records: list[dict[str, Any]] = []
    while missing := runs.next_runs("mlp8", "orthonorm", records):
        records += [{"lr": run.lr, "seed": run.seed, "epochs": [{"train_loss": loss(run.lr)}]} for run in missing]
    return records


@pytest.mark.parametrize("best", [1e-4, 3e-3, 0.01, 0.1, 0.3, 3.0])
def test_the_best_learning_rate_and_its_neighbours_get_all_seeds_and_the_others_one(best: float):
    records = run_all(lambda lr: abs(math.log(lr / best)))
    seeds = Counter(record["lr"] for record in records)
    place = runs.RATES.index(best)
    near = runs.RATES[place - 1 : place + 2]
    assert {lr for lr, count in seeds.items() if count == len(runs.SEEDS)} == set(near)
    assert all(count == 1 for lr, count in seeds.items() if lr not in near)
    assert seeds.keys() >= set(runs.SCANNED)


def test_a_neighbour_that_turns_out_better_by_all_seeds_gets_its_own_neighbour():
    def loss(lr: float, seed: int) -> float:
        return abs(math.log(lr / (0.03 if seed == 0 else 0.1)))

    records: list[dict[str, Any]] = []
    while missing := runs.next_runs("mlp8", "orthonorm", records):
        records += [{"lr": r.lr, "seed": r.seed, "epochs": [{"train_loss": loss(r.lr, r.seed)}]} for r in missing]
    seeds = Counter(record["lr"] for record in records)
    assert {lr for lr, count in seeds.items() if count == len(runs.SEEDS)} == {0.01, 0.03, 0.1, 0.3}


def test_a_way_that_always_diverges_ends():
    assert {record["lr"] for record in run_all(lambda _: math.nan)} <= set(runs.RATES)


def test_a_loss_that_is_not_finite_ends_a_run():
    lines = runs.train(runs.Run("mlp8", "plain, He initialization", 1e9, 0), PROBLEMS["mlp8"], tiny("mlp8"))
    assert lines[-1]["train_loss"] == math.inf
    assert len(lines) < PROBLEMS["mlp8"].epochs


def record(way: str, seed: int, lr: float, loss: float, errors: Sequence[float]) -> dict[str, Any]:
    epochs = [
        {"train_loss": loss, "seconds": 1.0, "test_error": error, "orthogonality_error": 1e-7 * (n + 1)}
        for n, error in enumerate(errors)
    ]
    return {"problem": "mlp8", "way": way, "lr": lr, "seed": seed, "epochs": epochs}


# By hand: at 0.1 the loss is lowest, the errors end at 4 to 8, and pass 8 after 1.5 epochs at the earliest. One run
# at 0.01 has a lower loss than all, and counts for nothing.
RECORDS = [
    *(record("OLM, centred", seed, 0.1, 0.2, (10.0, 6.0, 4.0 + seed)) for seed in range(5)),
    *(record("OLM, centred", seed, 0.3, 0.5, (10.0, 6.0, 1.0)) for seed in range(5)),
    *(record("OLM, centred", seed, 0.03, 0.3, (10.0, 6.0, 6.5)) for seed in range(5)),
    record("OLM, centred", 0, 0.01, 0.1, (10.0, 6.0, 9.0)),
    *(record("StiefelSGD", seed, lr, lr, (9.0, 9.0, 3.0 + seed)) for seed in range(5) for lr in runs.RATES[:2]),
    *(record("StiefelSGD", 0, lr, lr, (9.0, 9.0, 3.0)) for lr in runs.SCANNED),
    *(record("Landing", seed, lr, 0.2, (9.0, 9.0, 1.0)) for seed in range(4) for lr in runs.SCANNED),
]


def test_a_summary_is_of_the_learning_rate_with_the_lowest_training_loss_that_all_seeds_ran():
    found = summary.summaries(RECORDS)
    one = found["mlp8", "OLM, centred"]
    assert (one.lr, one.test_error, one.train_loss) == (0.1, 6.0, 0.2)
    assert one.orthogonality_error == pytest.approx(3e-7)
    # 10, then 6: 8 is half-way through the second epoch.
    assert one.epochs_to_target == pytest.approx(1.5)
    assert one.good_rates == (0.03, 0.3)
    assert not one.at_edge
    assert found["mlp8", "StiefelSGD"].at_edge
    assert ("mlp8", "Landing") not in found  # its fifth seed has not run


def test_the_verdict_is_that_of_paired_seeds():
    found = summary.summaries(RECORDS)
    errors = [found["mlp8", way].test_errors for way in ("StiefelSGD", OURS)]
    assert lower(*errors).answer == "holds"
    assert lower(*reversed(errors)).answer == "does not hold"


def test_the_page_is_the_same_from_packed_records_and_says_what_did_not_run(tmp_path: Path):
    made, out = tmp_path / "runs" / "mlp8", tmp_path / "out"
    made.mkdir(parents=True)
    out.mkdir()
    for number, one in enumerate(RECORDS):
        (made / f"{number}.json").write_text(json.dumps(one))
    row = {"seconds a step": 0.01, "times baseline": 2.0, "bytes kept over baseline": 1.0}
    rows = [{"problem": problem, "way": way, **row} for problem in PROBLEMS for way in WAYS]
    (out / "ways.json").write_text(json.dumps({"machine": {"threads": 1}, "rounds": 1, "load": 0.1, "rows": rows}))
    text = page.publish(made.parent, out).read_text()
    assert (
        "| OLM, centred | 0.1 | 6.0 (4.0 to 8.0) | 0.2 | 1.5 | 0.945 | 10 | 2.00 | 1.00 | 3.0e-07 | 0.03 to 0.3 |"
        in text
    )
    assert "| torch cayley | not run |" in text
    assert "| Landing | not run |" in text
    assert (out / "ways.png").stat().st_size > 0
    assert page.write_page(out).read_text() == text
    # The records of another folder are added to those that are packed.
    for path in made.iterdir():
        path.unlink()
    (made / "one.json").write_text(json.dumps(record("torch cayley", 0, 0.1, 0.2, (9.0,))))
    assert page.publish(made.parent, out).read_text() == text.replace(
        f"{len(RECORDS)} runs", f"{len(RECORDS) + 1} runs"
    )


def test_the_guidance_names_the_ways_that_beat_olm():
    found = summary.summaries(RECORDS)
    measured = {("mlp8", "OLM, centred"): {"seconds a step": 0.02}, ("mlp8", "StiefelSGD"): {"seconds a step": 0.01}}
    lines = guidance.guidance(found, measured, {"mlp8": "an MLP", "vgg-5k": "VGG"})
    # StiefelSGD: lower by 1 in every seed, exact, and quicker.
    named = [line for line in lines if line.startswith("- an MLP")]
    assert [line.split(": ")[1].split(" (")[0] for line in named] == ["StiefelSGD", "StiefelSGD", "none"]
    slower = {**measured, ("mlp8", "StiefelSGD"): {"seconds a step": 0.03}}
    named = [line for line in guidance.guidance(found, slower, {"mlp8": "an MLP"}) if line.startswith("- an MLP")]
    assert [line.split(": ")[1].split(" (")[0] for line in named] == ["StiefelSGD", "none", "none"]


def test_the_committed_page_is_that_of_the_committed_records(tmp_path: Path):
    committed = Path(__file__).parents[2] / "docs" / "bench"
    for name in ("ways.jsonl.gz", "ways.json"):
        shutil.copy(committed / name, tmp_path)
    assert page.write_page(tmp_path).read_text() == (committed / "ways.md").read_text()


def test_no_best_learning_rate_of_the_committed_records_is_at_an_edge():
    committed = Path(__file__).parents[2] / "docs" / "bench" / "ways.jsonl.gz"
    records = [json.loads(line) for line in gzip.decompress(committed.read_bytes()).splitlines()]
    assert [key for key, one in summary.summaries(records).items() if one.at_edge] == []


def test_the_times_have_a_row_for_every_way():
    rows = times.measure_times(1, ["rows-5k"])["rows"]
    assert [row["way"] for row in rows] == list(WAYS)
    assert all(row["seconds a step"] > 0 for row in rows)
    assert {row["times baseline"] for row in rows if row["way"] == times.BASELINE} == {1.0}
