"""What `orthonorm-paper list` and the end of `orthonorm-paper run` say."""

import shlex
from pathlib import Path

import pytest

from orthonorm_paper.cli.closing_lines import ending
from orthonorm_paper.cli.listing import ONE, fold, heading, overview, replaced, summary
from orthonorm_paper.experiments import EXPERIMENTS
from orthonorm_paper.records.counting import counted
from orthonorm_paper.records.files import write_record
from paper_support.recorded import record


def test_the_overview_counts_what_is_recorded(tmp_path: Path):
    runs = EXPERIMENTS["omdsm-5k"].runs()
    write_record(tmp_path / "omdsm-5k", record("OLM", 0.1, experiment="omdsm-5k"))
    rows = {row[0]: row[1:] for row in overview(tmp_path)}
    assert rows["orthonorm-paper run vgg"] == (
        "cifar10, cifar100",
        "0 of 90",
        "Table 1, Figure 5: VGG-style network on CIFAR-10 and CIFAR-100",
    )
    # A record of a run that the experiment has not is none of its own.
    assert rows["orthonorm-paper run omdsm-5k"][1] == f"0 of {len(runs)}"
    assert next(iter(rows)) == "orthonorm-paper run omdsm"


def test_a_summary_has_a_row_a_method_and_says_the_budget(tmp_path: Path):
    entry = EXPERIMENTS["wrn-5k"]
    rows = summary(entry, entry.runs(), tmp_path)
    line, columns, rest = fold(ONE, rows)
    assert columns == ["method"]
    assert rest == [["plain"], ["WN"], ["OLM"], ["OLM-L1"], ["OLM-scale"]]
    assert "learning rates: 0.05, 0.1, 0.2, 0.5, 1; budget: 2 epochs, batch 32, 5 seeds; recorded: 0 of 25" in line


def test_a_heading_says_where_the_rates_come_from():
    text = "\n".join(heading(EXPERIMENTS["vgg"], EXPERIMENTS["vgg"].runs()))
    assert "90 runs, each at one of the learning rates below" in text
    assert "`orthonorm-paper run vgg-tune`" in text
    assert "momentum 0.9 (Nesterov), momentum from zero when the learning rate changes, weight decay 0.0005" in text


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("vgg", "vgg, OLM-L4: orthogonal in the first 4 layers; 4 layers: 0, 2, 5, 7"),
        ("imagenet-resnet34", "resnet34, OLM: orthogonal, groups filled to the limit; 1 layer: conv1"),
        ("omdsm", "mlp (hidden_layers 4), QR: plain step, then Q of its QR decomposition"),
    ],
)
def test_replaced_layers_are_named(name: str, line: str):
    assert line in list(replaced(EXPERIMENTS[name].runs()))


def test_the_end_of_a_run_says_the_errors_and_what_comes_next():
    records = [
        record(method, lr, (2.0, loss), seed=seed, test_error=error)
        for method, lr, loss, error in (("plain", 0.1, 0.5, 9.0), ("plain", 0.5, 0.4, 8.0), ("OLM", 0.1, 0.1, 5.0))
        for seed in (0, 1)
    ]
    runs = [one.run for one in records]
    lines = ending("omdsm-5k", runs, records, Path("results"))
    assert lines[0] == "6 of 6 runs recorded in results/omdsm-5k: 6 completed"
    assert lines[1] == "test error in % on mnist-5k, mlp hidden_layers 4, batch 256: plain 8.50 ± 0.71, OLM 5.50 ± 0.71"
    assert lines[-1] == "next: orthonorm-paper report omdsm-5k"
    cut = ending("omdsm-5k", runs, records[:1], Path("elsewhere"))
    assert cut[0] == "1 of 6 runs recorded in elsewhere/omdsm-5k: 1 completed; 5 not begun"
    assert cut[-1] == "next: orthonorm-paper run omdsm-5k --results elsewhere"
    given = ["omdsm", "--data", "my data", "--only", "method=OLM,plain"]
    again = ending("omdsm-synthetic", runs, records[:1], Path("results"), given)
    assert shlex.split(again[-1].partition("orthonorm-paper ")[2]) == ["run", *given]
    assert ending("omdsm-synthetic", runs, records, Path("results"), given)[-1].endswith("report omdsm-synthetic")


def test_a_learning_rate_that_some_seeds_lack_is_not_the_best_of_the_closing_lines():
    both = [record("OLM", 0.1, (2.0, 0.5), seed=seed, test_error=9.0) for seed in (0, 1)]
    scanned = record("OLM", 0.5, (2.0, 0.1), seed=0, test_error=5.0)
    records = [*both, scanned]
    runs = [one.run for one in records]
    assert ending("omdsm-5k", runs, records, Path("results"))[1].endswith("OLM 9.50 ± 0.71")
    # While no learning rate has every seed, the lowest of all is shown.
    assert ending("omdsm-5k", runs, [both[1], scanned], Path("results"))[1].endswith("OLM 5.00")


def test_one_is_singular():
    (only,) = ending("omdsm-5k", [record("OLM", 0.1).run], [], Path("results"))[:1]
    assert only == "0 of 1 run recorded in results/omdsm-5k: none; 1 not begun"
    assert (counted(1, "run"), counted(2, "run"), counted(0, "run")) == ("1 run", "2 runs", "0 runs")
