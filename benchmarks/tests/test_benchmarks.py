"""The benchmark suite: what it reports is what it measured."""

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import orthonorm as on
from benchmarks import counts, networks, peers, roots, scaling, steps, targets, transform
from benchmarks.optim import bench_optim
from benchmarks.tables import as_markdown, write_result
from benchmarks.timing import interleaved_medians


def test_each_round_runs_every_candidate_twice_after_changing_neighbours():
    calls = []
    candidates = {name: partial(calls.append, name) for name in "abc"}
    medians = interleaved_medians(candidates, device=torch.device("cpu"), rounds=29, warmup=1)
    assert calls[::2] == calls[1::2]  # each is timed right after a run of its own
    timed = calls[::2]
    rounds = ["".join(timed[i : i + 3]) for i in range(0, len(timed), 3)]
    assert len(rounds) == 30
    assert {"".join(sorted(order)) for order in rounds} == {"abc"}
    assert len(set(rounds)) == 6
    assert set(medians) == {"a", "b", "c"}
    assert all(value > 0 for value in medians.values())


def test_the_hard_matrix_has_the_condition_it_claims_in_every_group():
    V = transform.spectrum_matrix(12, 40, 6, condition=1e3)
    for part in V.double().split(6):
        values = torch.linalg.svdvals(part - part.mean(-1, keepdim=True))
        assert float(values[0] / values[-1]) == pytest.approx(1e3, rel=1e-3)


@pytest.mark.parametrize("peer", [peers.svd_loop, peers.eigh_autograd, partial(peers.newton_autograd, steps=12)])
def test_a_peer_is_the_same_transformation(peer: Callable[[Tensor, int], Tensor]):
    V = torch.randn(6, 20)
    expected = transform.orthonormalize(V, group_size=3, center=True)
    torch.testing.assert_close(peer(V, 3), expected, rtol=0, atol=1e-4)


def test_every_row_names_its_accuracy_and_the_table_holds_every_row(tmp_path, monkeypatch):
    monkeypatch.setattr(transform, "SHAPES", {"tiny": (8, 32, 4)})
    result = transform.bench_transform(rounds=1)
    path = write_result(result, tmp_path)
    assert json.loads(path.with_suffix(".json").read_text())["rows"] == result["rows"]
    ours, _, exact, loop, _, five = result["rows"][:6]
    assert exact["error, condition 1e3"] < 1e-6
    assert ours["error, condition 1e3"] < 1e-5 < loop["error, condition 1e3"] < five["error, condition 1e3"]
    assert as_markdown(result).count("\n| tiny |") == 12
    assert result["machine"]["torch"] == torch.__version__


def test_other_libraries_layers_are_orthonormal_too(monkeypatch):
    monkeypatch.setattr(transform, "PEER_SHAPES", ((64, 70),))
    rows = transform.bench_peers(rounds=1)["rows"]
    assert len(rows) == 6
    assert max(row["error within a group"] for row in rows) < 1e-5


TINY = networks.Network(
    lambda: nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)), (4, 12), 3, 4
)


def test_steps_are_of_the_networks_they_name(monkeypatch):
    monkeypatch.setattr(networks, "NETWORKS", {"tiny": TINY})
    rows = steps.bench_steps(rounds=1)["rows"]
    assert [row["weights"] for row in rows] == [
        "plain",
        "weight_norm",
        "batched eigh, autograd",
        "orthonorm",
        "orthonorm, register_cached",
    ]
    assert rows[0]["times plain"] == 1
    assert max(row["error after the steps"] for row in rows[3:]) < 1e-5
    assert [row["with products and roots alone"] is None for row in rows] == [True] * 4 + [False]
    assert rows[4]["with products and roots alone"] > 1
    assert "| - |" in as_markdown({"rows": rows, "machine": {}, "rounds": 1})


def test_counts_by_hand():
    x = torch.ones(3, requires_grad=True)
    with counts.OperatorCalls() as calls, counts.SavedBytes() as saved:
        y = x.exp() + 1.0
        z = y * x
    assert calls.count == 3
    assert z.requires_grad
    assert saved.total == 3 * 3 * 4  # exp keeps its result; the product keeps y and x


def test_the_peak_is_what_is_alive_at_once():
    def run() -> None:
        first = torch.empty(1000)
        second = torch.empty(2000)
        del first, second
        torch.empty(1500)

    assert counts.peak_bytes(run, torch.device("cpu")) == 3000 * 4


def test_together_takes_fewer_calls_and_no_second_copy(monkeypatch):
    monkeypatch.setattr(networks, "NETWORKS", {"tiny": TINY})
    alone, together = counts.bench_counts()["rows"]
    assert together["operator calls"] < alone["operator calls"]
    assert alone["weights"] == 2
    assert min(row["peak bytes / bytes of the weights"] for row in (alone, together)) > 2  # weights and gradients


def test_scaling_names_its_series(monkeypatch):
    monkeypatch.setattr(scaling, "ROWS", [(64, 80), (128, 80)])
    monkeypatch.setattr(scaling, "LENGTHS", [(64, 80)])
    rows = scaling.bench_scaling(rounds=1)["rows"]
    assert [(row["varied"], row["n"], row["d"]) for row in rows] == [("n", 64, 80), ("n", 128, 80), ("d", 64, 80)]
    assert rows[0]["time an entry / the first"] == 1
    assert max(row["error"] for row in rows) < 1e-6


def test_the_roots_are_compared_by_the_methods_that_run_here(monkeypatch):
    monkeypatch.setattr(roots, "BATCHES", [(2, 16)])
    rows = roots.bench_roots(rounds=1)["rows"]
    assert [row["method"] for row in rows] == ["eigh", "newton"]
    assert rows[0]["in two threads, times eigh"] > 0
    assert rows[1]["in two threads, times eigh"] is None
    assert rows[0]["times eigh"] == rows[0]["times eigh's"] == 1
    assert max(row[f"error of the {part}"] for row in rows for part in ("root", "adjoint")) < 1e-12


@pytest.mark.filterwarnings("ignore::FutureWarning:torch.jit")  # geoopt uses torch.jit.script
def test_the_optimizers_are_compared_on_the_manifold_and_with_the_first_of_their_case():
    rows = bench_optim(rounds=1)["rows"]
    assert len(rows) == 4 * 2 + 4 + 2
    for row in rows:
        assert row["error"] < 1e-5
        assert row["times the first"] * row["first / this"] == pytest.approx(1.0)


def test_what_the_products_and_roots_take_is_of_the_groups_of_every_orthogonal_weight():
    model: Any = on.orthogonalize_(TINY.make(), on.OrthogonalConfig(group_size=3))
    # 8 rows of 12 and 8 of 8 (the last layer stays free) in groups of 3, 3 and 2.
    found = [tuple(X.shape) for module in model.modules() for X in steps._groups(module)]
    assert found == [(2, 3, 12), (1, 2, 12), (2, 3, 8), (1, 2, 8)]
    first = next(X for module in model.modules() for X in steps._groups(module))
    torch.testing.assert_close(first.flatten(0, 1), model[0].parametrizations.weight.original[:6])


def test_two_threads_decompose_as_one_with_one_core_each_and_leave_the_others_as_they_were():
    X = torch.randn(5, 6, 9, dtype=torch.float64)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    roots._threads.cache_clear()
    try:
        values = torch.cat([s for s, _ in roots._eigh_in_two_threads(X @ X.mT)])
        torch.testing.assert_close(values, torch.linalg.eigvalsh(X @ X.mT))
        assert set(roots._threads().map(lambda _: torch.get_num_threads(), range(2))) == {1}
        with ThreadPoolExecutor(1) as another:
            assert another.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(before)


DOCS = Path(__file__).resolve().parents[2] / "docs/bench"


def suites(folder: Path) -> None:
    for path in DOCS.glob("*.json"):
        shutil.copy(path, folder)


def test_the_committed_targets_are_those_of_the_committed_suites(tmp_path):
    suites(tmp_path)
    assert targets.write_targets(tmp_path).read_text() == (DOCS / "targets.md").read_text()


def test_a_target_is_reached_by_its_figure_alone(tmp_path):
    suites(tmp_path)
    steps_file = tmp_path / "steps.json"
    result = json.loads(steps_file.read_text())
    for row in result["rows"]:
        row["times plain"] = 1.05 if row["network"] == "VGG, batch 32" else 7.125
    steps_file.write_text(json.dumps(result))
    page = targets.write_targets(tmp_path).read_text()
    assert "| a step of VGG, batch 32, over plain | <= 1.06 | [1.05](steps.md) | reached |" in page
    assert "| a step of the MLP over plain | <= 2 | [7.12](steps.md) | **missed** |" in page
    missed = page.count("| **missed** |")
    assert f"Of {len(targets.TARGETS)} targets {missed} are missed." in page


def test_a_network_that_is_not_installed_was_not_measured(tmp_path):
    suites(tmp_path)
    steps_file = tmp_path / "steps.json"
    result = json.loads(steps_file.read_text())
    result["rows"] = [row for row in result["rows"] if "VGG" not in row["network"]]
    steps_file.write_text(json.dumps(result))
    page = targets.write_targets(tmp_path).read_text()
    assert "| a step of VGG, batch 32, over plain | <= 1.06 | not measured | - |" in page
