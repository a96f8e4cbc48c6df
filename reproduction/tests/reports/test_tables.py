"""Tables of errors: the paper's layout and numbers, ours beside them, and what must be said with them."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.figures.mean_curves import epoch_reached, mean_curve
from orthonorm_paper.reports.tables.layouts import FULL, REDUCED, SYNTHETIC, label_of, layouts, names
from orthonorm_paper.reports.tables.placement import place
from orthonorm_paper.reports.tables.test_error import errors_text
from paper_support.recorded_tables import FIVE, as_table_1_says, errors_record, means, seeds_of

LAYOUTS = layouts()

# The paper's tables, typed from them a second time: mean, and deviation where it gives one.
TABLES: dict[str, dict[str, list[tuple[float, ...]]]] = {
    "vgg": {
        "plain": [(10.39, 0.14), (36.02, 0.40)],
        "WN": [(10.29, 0.39), (34.66, 0.75)],
        "OLM-L2": [(10.06, 0.23), (35.42, 0.32)],
        "OLM-L4": [(9.61, 0.23), (33.66, 0.11)],
        "OLM": [(8.61, 0.18), (32.58, 0.10)],
    },
    "inception": {
        "plain": [(5.38, 0.18), (24.87, 0.15)],
        "WN": [(5.87, 0.35), (23.85, 0.28)],
        "OLM": [(4.74, 0.16), (22.02, 0.13)],
    },
    "wrn": {
        "pre-ResNet-1001": [(4.62,), (22.71,)],
        "WRN-28-10": [(4.17,), (20.04,)],
        "WRN-28-10, its authors' later result": [(3.89,), (18.85,)],
        "WRN-28-10 OLM": [(3.73, 0.12), (18.76, 0.40)],
        "WRN-28-10 OLM-L1": [(3.82, 0.19), (18.61, 0.14)],
    },
    "imagenet": {
        "plain": [(20.91,), (12.5,), (9.84,), (9.79,)],
        "OLM": [(20.43,), (9.83,), (9.68,), (9.45,)],
    },
}


def text(layout: str, variant: str, records: Sequence[Record], name: str = "") -> str:
    return errors_text(name or layout, place(LAYOUTS[layout], variant, records))


def row(markdown: str, title: str, *, section: str = "") -> list[list[str]]:
    """Cells of the lines of a table that begin with a title."""
    part = markdown[markdown.index(section) :]
    lines = [[cell.strip() for cell in line.split(" | ")] for line in part.splitlines() if line.startswith("| ")]
    return [[cells[0].removeprefix("| "), *cells[1:-1], cells[-1].removesuffix(" |")] for cells in lines
            if cells[0] == f"| {title}"]  # fmt: skip


@pytest.mark.parametrize("layout", TABLES)
def test_the_numbers_of_the_paper_are_those_of_its_tables(layout: str):
    found = {
        r.title or r.label: [tuple(r.paper[key]) for key in LAYOUTS[layout].columns]
        for r in LAYOUTS[layout].rows
        if r.paper
    }
    assert found == TABLES[layout]


def test_the_paper_s_epochs_and_seconds_are_those_of_its_text():
    assert [r.reach for r in LAYOUTS["vgg"].rows if r.reach] == [{"cifar10": 21, "cifar100": 17}]
    seconds = {(r.model, r.label): r.seconds for r in LAYOUTS["cost"].rows if r.seconds}
    assert seconds == {
        ("vgg", "plain"): 0.26, ("vgg", "WN"): 0.38, ("vgg", "OLM"): 0.46,
        ("wide-resnet", "plain"): 1.1, ("wide-resnet", "OLM"): 3.12,
    }  # fmt: skip
    # The ratios that the paper's claims are about.
    assert [claim["limit"] for claim in LAYOUTS["cost"].claims[:2]] == [round(0.46 / 0.26, 2), round(3.12 / 1.1, 2)]


def test_every_experiment_has_one_layout():
    every = [name for layout in LAYOUTS.values() for name in names(layout)]
    assert len(every) == len(set(every))
    assert {"vgg-5k", "inception-5k", "wrn-5k", "pie-5k"} == {
        name for layout in LAYOUTS.values() for name, variant in names(layout).items() if variant == REDUCED
    }


def test_ours_stands_beside_the_paper_s_with_mean_deviation_seeds_and_rate():
    records = [
        *seeds_of("vgg", "OLM", FIVE, lr=0.05),
        *seeds_of("vgg", "plain", (20.0, 21.0), lr=0.1),
        *seeds_of("vgg", "OLM", (33.25,), dataset="cifar100"),
    ]
    markdown = text("vgg", FULL, records)
    mean, deviation = statistics.mean(FIVE), statistics.stdev(FIVE)
    assert (mean, round(deviation, 2)) == (10.0, 1.58)
    assert row(markdown, "OLM") == [
        [
            "OLM",
            "8.61 ± 0.18",
            "10.00 ± 1.58 (5 seeds, learning rate 0.05)",
            "32.58 ± 0.10",
            "33.25 (1 of 5 seeds, learning rate 0.1)",
        ],
        ["OLM", "21", "3 of 3", "17", "–"],
    ]
    assert row(markdown, "plain")[0][1:] == ["10.39 ± 0.14", "20.50 ± 0.71 (2 of 5 seeds, learning rate 0.1)",
                                             "36.02 ± 0.40", "–"]  # fmt: skip
    assert row(markdown, "OLM-L2")[0][1:] == ["10.06 ± 0.23", "–", "35.42 ± 0.32", "–"]
    assert "| method | CIFAR-10, the paper | CIFAR-10, ours | CIFAR-100, the paper | CIFAR-100, ours |" in markdown


def test_data_set_budget_networks_and_machine_stand_above_the_table():
    records = [
        *seeds_of("vgg", "OLM", FIVE, description="50,000 images", model_args={"width": 0.25}, parameters=990),
        *seeds_of("vgg", "plain", FIVE, description="50,000 images", model_args={"width": 0.25}, parameters=1000),
    ]
    head, _ = text("vgg", FULL, records).split("## Table 1")
    assert head.splitlines()[2:] == [
        "- The paper: CIFAR-10 and CIFAR-100, 100 epochs of batch 256, the learning rate chosen on a validation "
        "split; mean ± standard deviation of 5 runs",
        "- Ours, CIFAR-10: 50,000 images; batch 256: 3 epochs of 10 steps, constant learning rate; seeds 0, 1, 2, 3, 4",
        "- Ours, CIFAR-100: – not run",
        "- Network: vgg (width 0.25), 990 to 1,000 parameters",
        "- Versions: python 3.11.0, orthonorm 0.1.0",
        "- Device: no device, 1 thread(s) a run",
        "",
    ]


def test_a_row_says_its_own_budget_where_others_have_another():
    records = [*seeds_of("vgg", "OLM", (9.0,)), errors_record("vgg", "plain", (90.0, 30.0), batch_size=128)]
    markdown = text("vgg", FULL, records)
    assert row(markdown, "OLM")[0][2] == "9.00 (1 of 5 seeds, learning rate 0.1, 3 epochs, batch 256)"
    assert row(markdown, "plain")[0][2] == "30.00 (1 of 5 seeds, learning rate 0.1, 2 epochs, batch 128)"


def test_several_rates_of_a_method_have_a_row_each():
    records = [*seeds_of("vgg", "OLM", (9.0, 9.0), lr=0.1), *seeds_of("vgg", "OLM", (8.0, 8.0), lr=0.01)]
    ours = [cells[1:3] for cells in row(text("vgg", FULL, records), "OLM") if "seeds" in cells[2]]
    assert ours == [
        ["8.61 ± 0.18", "8.00 ± 0.00 (2 of 5 seeds, learning rate 0.01)"],
        ["8.61 ± 0.18", "9.00 ± 0.00 (2 of 5 seeds, learning rate 0.1)"],
    ]


def test_divergence_is_said_and_has_no_mean():
    records = [
        errors_record("vgg", "WN", (90.0, 1.0), seed=s, outcome="diverged" if s else "completed") for s in (0, 1)
    ]
    assert row(text("vgg", FULL, records), "WN")[0][2].startswith("diverged (1 of 2) (2 of 5 seeds")


def test_a_method_that_the_paper_has_not_comes_last():
    markdown = text("vgg", FULL, seeds_of("vgg", "OLM-balanced", (9.0,)))
    table = markdown[markdown.index("## Table 1") :].split("\n\n")[1]
    assert table.splitlines()[-1] == "| OLM-balanced | – | 9.00 (1 of 5 seeds, learning rate 0.1) | – | – |"


def test_table_3_names_networks_and_what_is_only_the_paper_s():
    markdown = text("wrn", FULL, seeds_of("wrn", "plain", FIVE, model="wide-resnet"))
    assert row(markdown, "WRN-28-10") == [
        ["WRN-28-10", "4.17", "10.00 ± 1.58 (5 seeds, learning rate 0.1)", "20.04", "–"]
    ]
    assert row(markdown, "pre-ResNet-1001") == [["pre-ResNet-1001", "4.62", "–", "22.71", "–"]]
    assert row(markdown, "WRN-28-10, its authors' later result")[0][1:] == ["3.89", "–", "18.85", "–"]
    other = text("wrn", FULL, seeds_of("wrn", "plain", (4.5,), model="preresnet-cifar"))
    assert row(other, "pre-ResNet-1001")[0][2] == "4.50 (1 of 5 seeds, learning rate 0.1)"
    assert row(other, "WRN-28-10")[0][2] == "–"


def test_table_4_is_of_four_networks_and_top_5_errors():
    records = [
        errors_record("imagenet-alexnet", method, (60.0, 45.0), top5=(40.0, top5), model="alexnet", dataset="imagenet")
        for method, top5 in (("plain", 21.0), ("OLM", 20.5))
    ]
    markdown = text("imagenet", FULL, records)
    assert row(markdown, "OLM")[0] == [
        "OLM",
        "20.43",
        "20.50 (1 seed, learning rate 0.1)",
        "9.83",
        "–",
        "9.68",
        "–",
        "9.45",
        "–",
    ]
    assert "## Table 4: top-5 test error, %" in markdown
    assert "| OLM ends below plain | AlexNet | **undecided** | 1 | +0.5 | OLM 20.50 against plain 21.00 |" in markdown


def test_a_reduced_experiment_says_so_and_the_paper_s_numbers_are_told_apart():
    records = means({"plain": 6.0, "OLM": 5.0}, "vgg-5k", seeds=3, dataset="mnist-5k-rgb", description="5,000 digits")
    markdown = text("vgg", REDUCED, records, "vgg-5k")
    assert markdown.startswith("# vgg-5k: VGG-style network (Table 1, Figure 5), at a reduced size\n")
    assert "| method | the paper, on CIFAR-10, full budget | mnist-5k-rgb, ours, reduced |" in markdown
    assert "- Ours, mnist-5k-rgb: 5,000 digits; batch 256: 3 epochs" in markdown
    assert row(markdown, "OLM")[0] == ["OLM", "8.61 ± 0.18", "5.00 ± 0.00 (3 seeds, learning rate 0.1)"]
    assert "36.02" not in markdown
    assert "\n## Table 1, at a reduced size: test error, %\n" in markdown
    assert "## Claims, judged at the reduced size" in markdown
    # Three seeds decide nothing, and what was not run is one line, not one for each claim.
    assert "**holds**" not in markdown
    assert markdown.split("## Claims")[1].count("OLM-L4") == 1


def test_a_reduced_table_3_has_no_rows_of_networks_that_were_not_run():
    records = seeds_of("wrn-5k", "OLM", (5.0,), model="wide-resnet", dataset="mnist-5k-rgb")
    markdown = text("wrn", REDUCED, records, "wrn-5k")
    assert "1001" not in markdown
    assert "later result" not in markdown
    # The paper's names say depth 28 and width 10.
    assert row(markdown, "OLM")[0] == ["OLM", "3.73 ± 0.12", "5.00 (1 seed, learning rate 0.1)"]


def test_synthetic_is_said_in_every_row_and_heading_and_nothing_is_judged():
    records = as_table_1_says("vgg-synthetic", dataset="cifar10-synthetic", description="synthetic patterns")
    markdown = text("vgg", SYNTHETIC, records, "vgg-synthetic")
    lines = markdown.splitlines()
    assert all("synthetic" in line for line in lines if line.startswith("#") and line != "## Claims")
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| method")]
    assert len(rows) >= 7
    assert all("(synthetic)" in line for line in rows)
    assert "No claim of the paper is judged on synthetic data." in markdown
    assert "| method | the paper, on CIFAR-10, full budget | CIFAR-10, synthetic, ours |" in markdown


def test_the_epoch_of_plain_s_final_error_is_that_of_the_mean_curve():
    # Plain ends at 30 and 32: mean 31. OLM's means are 61, 31.5, 31, 10: the third epoch.
    plain = [errors_record("vgg", "plain", (90.0, 80.0, 70.0, e), seed=s) for s, e in enumerate((30.0, 32.0))]
    olm = [
        errors_record("vgg", "OLM", curve, seed=s)
        for s, curve in enumerate(((60.0, 29.0, 28.0, 9.0), (62.0, 34.0, 34.0, 11.0)))
    ]
    never = [errors_record("vgg", "WN", (90.0, 80.0, 70.0, 31.5), seed=s) for s in (0, 1)]
    markdown = text("vgg", FULL, [*plain, *olm, *never])
    assert row(markdown, "OLM", section="## Epoch of plain's final error")[0] == ["OLM", "21", "3 of 4", "17", "–"]
    assert row(markdown, "WN", section="## Epoch of plain's final error")[0] == ["WN", "–", "not reached", "–", "–"]
    assert "CIFAR-10, ours (to 31.00%)" in markdown


def test_a_mean_curve_goes_on_over_the_seeds_that_are_left():
    records = [errors_record("vgg", "OLM", (50.0, 30.0)), errors_record("vgg", "OLM", (70.0,), seed=1)]
    assert mean_curve(records, "test_error") == [60.0, 30.0]
    assert mean_curve([], "test_error") == []
    assert epoch_reached([3.0, 2.0, 1.0], 0.5) is None
    assert epoch_reached([3.0, 2.0, 1.0], 2.0) == 2


LABELS: list[tuple[str, dict[str, Any], str]] = [
    ("method", {}, "OLM"),
    ("group size", {"method_args": {"group_size": 16}}, "OLM-16"),
    ("uncentred", {"method_args": {"group_size": 128, "center": False}}, "OLM-128-uncentred"),
    ("centred", {"method_args": {"center": True}}, "OLM-centred"),
    ("batch normalisation", {"model_args": {"batch_norm": True}}, "OLM+batch"),
    ("none", {"model_args": {"batch_norm": False}}, "OLM"),
    ("any other", {"method_args": {"layers": "all"}}, "OLM, layers all"),
]


@pytest.mark.parametrize(("fields", "label"), [entry[1:] for entry in LABELS], ids=[entry[0] for entry in LABELS])
def test_a_label_is_the_method_with_what_distinguishes_it(fields: dict[str, Any], label: str):
    assert label_of(errors_record("pie-groups", "OLM", (1.0,), **fields).run) == label


def test_what_the_paper_says_stands_where_it_gives_no_number():
    records = seeds_of("pie-groups", "OLM", FIVE, dataset="pie", model="pie-mlp", method_args={"group_size": 128})
    markdown = text("pie-groups", FULL, records)
    assert "| method | the paper says | PIE, ours |" in markdown
    assert row(markdown, "OLM-128")[0] == [
        "OLM-128", "better than plain and WN, worse than smaller groups", "10.00 ± 1.58 (5 seeds, learning rate 0.1)",
    ]  # fmt: skip


def test_no_character_of_a_label_means_anything():
    markdown = text("vgg", FULL, seeds_of("vgg", "<script>|*x*", (9.0,), description="a <b> | c"))
    assert r"| \<script\>\|\*x\* | – | 9.00 (1 of 5 seeds, learning rate 0.1) | – | – |" in markdown
    assert r"a \<b\> \| c; batch 256" in markdown


def test_the_text_s_variant_of_table_3_has_a_row_of_its_own():
    records = seeds_of("wrn-shortcuts", "OLM", FIVE, model="wide-resnet", method_args={"layers": "convolutions"})
    markdown = text("wrn", FULL, records)
    assert row(markdown, "WRN-28-10 OLM in the shortcuts too, as the paper's text has it")[0][1:3] == [
        "–", "10.00 ± 1.58 (5 seeds, learning rate 0.1)",
    ]  # fmt: skip
    assert row(markdown, "WRN-28-10 OLM")[0][1:3] == ["3.73 ± 0.12", "–"]


def test_synthetic_data_without_top_5_errors_show_the_test_error():
    records = seeds_of("imagenet-alexnet-synthetic", "OLM", (9.0,), model="alexnet", dataset="imagenet-synthetic")
    markdown = text("imagenet", SYNTHETIC, records)
    assert "## Table 4, on synthetic data: test error, %" in markdown
    assert "| method | the paper, AlexNet on ImageNet, full budget | AlexNet, synthetic, ours |" in markdown
    assert row(markdown, "OLM (synthetic)")[0] == ["OLM (synthetic)", "20.43", "9.00 (1 seed, learning rate 0.1)"]


WRONG: list[tuple[str, Callable[[], object], str]] = [
    (
        "no top-5 error",
        lambda: place(LAYOUTS["imagenet"], FULL, seeds_of("imagenet-alexnet", "OLM", (9.0,), model="alexnet")),
        "OLM-alexnet-b256-lr0.1-s0-.* has no test_top5_error, which Table 4 shows",
    ),
]


@pytest.mark.parametrize(("call", "message"), [entry[1:] for entry in WRONG], ids=[entry[0] for entry in WRONG])
def test_a_record_that_cannot_be_shown_is_refused(call: Callable[[], object], message: str):
    with pytest.raises(UserError, match=message):
        call()
