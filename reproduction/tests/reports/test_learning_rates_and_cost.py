"""Tables of chosen rates and of seconds per iteration."""

from typing import Any

import pytest

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.chosen_learning_rate import selected
from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.tables.cost import cost_text, seconds_per_iteration
from orthonorm_paper.reports.tables.layouts import FULL, SYNTHETIC, layouts
from orthonorm_paper.reports.tables.learning_rates import rates_text
from paper_support.recorded_tables import errors_record

LAYOUTS = layouts()


def tried(method: str, lr: float, error: float, **fields: Any) -> Record:
    return errors_record("vgg-tune", method, (90.0, error), **({"dataset": "cifar10-tune", "lr": lr} | fields))


RATES = [
    *(tried("OLM", lr, error) for lr, error in ((0.01, 12.0), (0.05, 9.0), (0.1, 10.0))),
    *(tried("plain", lr, error) for lr, error in ((0.01, 15.0), (0.05, 16.0), (0.1, 17.0))),
]


def test_the_rate_chosen_is_in_bold_and_is_the_one_that_is_selected():
    markdown = rates_text("vgg-tune", LAYOUTS["vgg-tune"], FULL, RATES)
    assert "| method | 0.01 | 0.05 | 0.1 | learning rate chosen |" in markdown
    assert "| OLM | 12.00 | **9.00** | 10.00 | 0.05 |" in markdown
    assert "| plain | **15.00** | 16.00 | 17.00 | 0.01 |" in markdown
    assert markdown.index("| plain |") < markdown.index("| OLM |")
    found = selected(RATES, [record.run for record in RATES])
    assert {key[4]: lr for key, lr in found.items()} == {"OLM": 0.05, "plain": 0.01}
    assert "## cifar10, SGD: validation error, %" in markdown


def test_nothing_is_chosen_where_runs_are_missing_or_all_diverged():
    diverged = [tried("WN", lr, 1.0, outcome="diverged") for lr in (0.01, 0.05, 0.1)]
    markdown = rates_text("vgg-tune", LAYOUTS["vgg-tune"], FULL, [*RATES[:-1], *diverged])
    assert "| plain | 15.00 | 16.00 | – | 1 missing |" in markdown
    assert "| WN | diverged | diverged | diverged | every one diverged |" in markdown


def test_several_seeds_give_mean_and_deviation():
    records = [tried("OLM", 0.1, error, seed=seed) for seed, error in enumerate((9.0, 10.0, 11.0))]
    assert "| OLM | **10.00 ± 1.00 (3 seeds)** | 0.1 |" in rates_text("vgg-tune", LAYOUTS["vgg-tune"], FULL, records)


def test_data_sets_and_optimizers_have_tables_of_their_own():
    records = [
        tried("OLM", 0.1, 9.0, dataset="pie-tune"),
        tried("OLM", 0.001, 8.0, dataset="pie-tune", optimizer="adam"),
        tried("OLM", 0.5, 7.0, dataset="pie-tune", method_args={"group_size": 16}),
        tried("OLM", 0.1, 7.0, dataset="pie-tune", method_args={"group_size": 16}),
    ]
    markdown = rates_text("pie-tune", LAYOUTS["pie-tune"], FULL, records)
    assert [line for line in markdown.splitlines() if line.startswith("## ")] == [
        "## pie, SGD: validation error, %",
        "## pie, ADAM: validation error, %",
    ]
    assert "| OLM-16 | **7.00** | 7.00 | 0.1 |" in markdown
    assert "| OLM | **8.00** | 0.001 |" in markdown


def test_synthetic_rates_say_so_in_every_row_and_heading():
    records = [tried("OLM", 0.1, 9.0, dataset="cifar10-synthetic"), tried("WN", 0.1, 9.0, dataset="cifar10-synthetic")]
    lines = rates_text("vgg-tune-synthetic", LAYOUTS["vgg-tune"], SYNTHETIC, records).splitlines()
    assert all("synthetic" in line for line in lines if line.startswith(("#", "| OLM", "| WN")))


def timed(method: str, seconds: tuple[float, ...], model: str = "vgg", **fields: Any) -> Record:
    return errors_record("cost", method, (50.0,) * len(seconds), seconds=seconds, model=model, **fields)


def test_seconds_per_iteration_are_a_median_without_the_first_epoch():
    # Steps of 10: medians of 0.2, 0.3, 0.7 and of 0.4 are 0.35 by hand.
    records = [timed("OLM", (9.0, 2.0, 3.0, 7.0)), timed("OLM", (4.0,), seed=1)]
    assert seconds_per_iteration(records) == pytest.approx(0.35)
    assert seconds_per_iteration([timed("OLM", ())]) is None


COSTS = [
    timed("plain", (5.0, 2.0), device="a card"),
    timed("WN", (5.0, 3.0), device="a card"),
    timed("OLM", (5.0, 3.5), device="a card"),
    timed("plain", (9.0, 10.0), "wide-resnet", batch_size=128),
    timed("OLM", (9.0, 30.0), "wide-resnet", batch_size=128),
]


def test_the_cost_stands_beside_the_paper_s_with_its_ratio_to_plain():
    markdown = cost_text("cost", LAYOUTS["cost"], FULL, COSTS)
    assert "| VGG-style | plain | 0.26 | 1.00 | 0.2 | 1.00 | batch 256, cifar10, a card, 2 epochs |" in markdown
    assert "| VGG-style | WN | 0.38 | 1.46 | 0.3 | 1.50 | batch 256, cifar10, a card, 2 epochs |" in markdown
    assert "| VGG-style | OLM | 0.46 | 1.77 | 0.35 | 1.75 | batch 256, cifar10, a card, 2 epochs |" in markdown
    assert "| WRN-28-10 | OLM | 3.12 | 2.84 | 3 | 3.00 | batch 128, cifar10, no device, 2 epochs |" in markdown
    assert "| WRN-28-10 | OLM-L1 | – | – | – | – | – |" in markdown


def test_claims_about_costs_are_judged_by_the_ratio():
    lines = [line for line in cost_text("cost", LAYOUTS["cost"], FULL, COSTS).splitlines() if "**" in line]
    assert [line.split("**")[1] for line in lines] == ["holds", "does not hold", "undecided"]
    assert lines[0].endswith("| OLM 1.75 times plain |")


def test_a_cost_of_two_kinds_of_runs_is_refused():
    with pytest.raises(UserError, match=r"OLM-vgg-b256-.*OLM-vgg-b64-"):
        cost_text("cost", LAYOUTS["cost"], FULL, [COSTS[2], timed("OLM", (1.0,), batch_size=64)])


def test_a_synthetic_cost_says_so_in_every_row():
    records = [timed("OLM", (1.0, 1.0), dataset="cifar10-synthetic")]
    lines = cost_text("cost-synthetic", LAYOUTS["cost"], SYNTHETIC, records).splitlines()
    assert all("(synthetic)" in line for line in lines if line.startswith(("| VGG", "| WRN")))
    assert "## Seconds per iteration, synthetic data" in lines
