"""The benchmark suite: what it reports is what it measured."""

import json

import pytest
import torch

from orthonorm.bench import transform
from orthonorm.bench.optim import bench_optim
from orthonorm.bench.tables import as_markdown, write_result
from orthonorm.bench.timing import interleaved_medians


def test_candidates_alternate_and_warm_up_is_not_counted():
    calls = []
    medians = interleaved_medians({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3, warmup=1)
    assert calls == ["a", "b"] * 4
    assert set(medians) == {"a", "b"}
    assert all(value > 0 for value in medians.values())


def test_the_hard_matrix_has_the_condition_it_claims_in_every_group():
    V = transform.spectrum_matrix(12, 40, 6, condition=1e3)
    for part in V.double().split(6):
        values = torch.linalg.svdvals(part - part.mean(-1, keepdim=True))
        assert float(values[0] / values[-1]) == pytest.approx(1e3, rel=1e-3)


def test_the_svd_loop_is_the_same_transformation():
    V = torch.randn(6, 20)
    expected = transform.orthonormalize(V, group_size=3)
    torch.testing.assert_close(transform.svd_loop(V, 3), expected, rtol=0, atol=1e-4)


def test_every_row_names_its_accuracy_and_the_table_holds_every_row(tmp_path, monkeypatch):
    monkeypatch.setattr(transform, "SHAPES", {"tiny": (8, 32, 4)})
    result = transform.bench_transform(rounds=1)
    path = write_result(result, tmp_path)
    assert json.loads(path.with_suffix(".json").read_text())["rows"] == result["rows"]
    ours, _, loop = result["rows"]
    assert ours["error, condition 1e3"] < 1e-6 < loop["error, condition 1e3"]
    assert as_markdown(result).count("\n| tiny |") == 3
    assert result["machine"]["torch"] == torch.__version__


@pytest.mark.filterwarnings("ignore::FutureWarning:torch.jit")  # geoopt uses torch.jit.script
def test_the_optimizers_are_compared_on_the_manifold_and_with_the_first_of_their_case():
    rows = bench_optim(rounds=1)["rows"]
    assert len(rows) == 4 * 2 + 4
    for row in rows:
        assert row["error"] < 1e-5
        assert row["times the first"] * row["first / this"] == pytest.approx(1.0)
