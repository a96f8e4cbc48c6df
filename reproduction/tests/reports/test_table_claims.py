"""Claims about tables: each kind holds, fails and is undecided where the numbers say so."""

from collections.abc import Callable, Sequence

import pytest

from orthonorm_paper.records.files import Record
from orthonorm_paper.reports.claims.rule import Verdict
from orthonorm_paper.reports.claims.tables import judge_column, verdict_lines
from orthonorm_paper.reports.tables.layouts import FULL, REDUCED, layouts
from orthonorm_paper.reports.tables.placement import place
from paper_support.recorded_tables import as_table_1_says, errors_record, means, seeds_of

LAYOUTS = layouts()


def verdict(layout: str, number: int, records: Sequence[Record], variant: str = FULL, key: str = "cifar10") -> Verdict:
    return judge_column(LAYOUTS[layout].claims[number], place(LAYOUTS[layout], variant, records), key)


def without(method: str, records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.run.method != method]


VGG = range(len(LAYOUTS["vgg"].claims))


@pytest.mark.parametrize("number", VGG)
def test_a_claim_about_table_1_holds_where_the_errors_are_as_it_says(number: int):
    assert verdict("vgg", number, as_table_1_says()).answer == "holds"


# For each claim about Table 1, the records of one method that make it wrong.
CONTRARY: list[Callable[[int], Record]] = [
    lambda seed: errors_record("vgg", "WN", (90.0,) * 7 + (14.9,), seed=seed),
    lambda seed: errors_record("vgg", "OLM-L4", (90.0,) * 7 + (17.5,), seed=seed),
    lambda seed: errors_record("vgg", "OLM", (90.0, 21.0, *(15.0,) * 6), seed=seed),
    lambda seed: errors_record("vgg", "plain-he", (90.0,) * 7 + (14.0,), seed=seed),
    lambda seed: errors_record("vgg", "plain-orthogonal", (90.0,) * 7 + (14.9,), seed=seed),
    lambda seed: errors_record("vgg", "OLM-L4", (16.0,) * 8, train=(90.0,) * 7 + (17.5,), seed=seed),
    lambda seed: errors_record("vgg", "OLM-L4", (16.0,) * 8, train=(90.0,) * 7 + (21.0,), seed=seed),
    lambda seed: errors_record("vgg", "OLM", (15.0,) * 8, train=(90.0,) * 7 + (19.0,), seed=seed),
    lambda seed: errors_record("vgg", "OLM-scale", (90.0,) * 7 + (14.5,), seed=seed),
]


@pytest.mark.parametrize("number", VGG)
def test_a_claim_about_table_1_does_not_hold_where_the_errors_say_the_contrary(number: int):
    bad = [CONTRARY[number](seed) for seed in range(5)]
    records = [*without(bad[0].run.method, as_table_1_says()), *bad]
    assert verdict("vgg", number, records).answer == "does not hold"


@pytest.mark.parametrize("number", VGG)
def test_a_claim_is_undecided_where_seeds_disagree_or_are_too_few(number: int):
    bad = CONTRARY[number](3)
    good = [r for r in as_table_1_says() if (r.run.method, r.run.seed) != (bad.run.method, 3)]
    assert verdict("vgg", number, [*good, bad]).answer == "undecided"
    few = verdict("vgg", number, as_table_1_says(count=4))
    assert (few.answer, few.seeds) == ("undecided", 4)
    absent = verdict("vgg", number, without(bad.run.method, good))
    assert (absent.answer, absent.numbers) == ("undecided", f"not run: {bad.run.method}")


def test_a_reduced_experiment_is_judged_by_the_same_rule():
    def answers(count: int) -> set[str]:
        records = as_table_1_says("vgg-5k", count=count, dataset="mnist-5k-rgb")
        return {verdict("vgg", number, records, REDUCED, "mnist-5k-rgb").answer for number in VGG}

    assert answers(5) == {"holds"}
    assert answers(3) == {"undecided"}


def test_the_numbers_of_a_verdict_are_those_of_each_seed():
    records = means({"plain": 10.5, "OLM": 9.25}, "inception", seeds=2)
    claim = {"kind": "below", "methods": ["OLM"], "than": ["plain"]}
    found = judge_column(claim, place(LAYOUTS["inception"], FULL, records), "cifar10")
    assert found.numbers == "OLM 9.25 against plain 10.50; OLM 9.25 against plain 10.50"
    assert (found.seeds, found.difference) == (2, "+1.25 (+1.25 to +1.25)")


def curves(losses: dict[str, tuple[float, ...]], outcome: str = "completed") -> list[Record]:
    """Two seeds of each label with these training errors; the test error is the same in all."""
    made = [(label, train, seed) for label, train in losses.items() for seed in range(2)]
    return [
        errors_record("inception", label, (5.0,) * len(train), train=train, seed=seed, outcome=outcome)
        for label, train, seed in made
    ]


def test_epochs_are_counted_to_the_higher_of_two_final_values():
    claim = {"kind": "faster", "field": "train_error", "methods": ["OLM"], "than": ["plain", "WN"]}

    def differences(**losses: tuple[float, ...]) -> str:
        placed = place(LAYOUTS["inception"], FULL, curves(losses))
        return judge_column(claim, placed, "cifar10").difference.split(" ")[0]

    # To 20: after 2.5 epochs against 4; WN, to 22: after 2.4 against 3. The smaller lead counts.
    assert differences(OLM=(40, 25, 15, 10), plain=(60, 50, 30, 20), WN=(60, 40, 22, 22)) == "+0.7"
    # OLM ends above both: to its own 12, after 4 epochs, which plain has after 3.8.
    assert differences(OLM=(40, 25, 15, 12), plain=(60, 50, 20, 10), WN=(60, 50, 20, 10)) == "-0.2"


def test_the_epochs_along_several_methods_fall_by_the_smallest_step():
    claim = {"kind": "sooner", "field": "train_error", "methods": ["plain", "WN", "OLM"]}
    losses = {"plain": (60.0, 40.0, 30.0, 20.0), "WN": (60.0, 30.0, 10.0), "OLM": (50.0, 10.0, 8.0)}
    found = judge_column(claim, place(LAYOUTS["inception"], FULL, curves(losses)), "cifar10")
    # To 20: after 4, 2.5 and 1.75 epochs.
    assert found.difference.startswith("+0.75 ")
    assert found.numbers.split("; ")[0] == "plain 4.0, WN 2.5, OLM 1.8 epochs (to 20.00)"


def test_a_run_that_diverged_never_gets_anywhere():
    claim = {"kind": "faster", "field": "train_error", "methods": ["OLM"], "than": ["plain"]}
    lost = curves({"OLM": (40.0, 10.0)}, outcome="diverged")
    other = curves({"plain": (60.0, 50.0)})
    found = judge_column(claim, place(LAYOUTS["inception"], FULL, [*lost, *other]), "cifar10")
    assert (found.answer, found.difference) == ("undecided", "not finite in 2 of 2")
    both = curves({"plain": (60.0, 50.0)}, outcome="diverged")
    assert judge_column(claim, place(LAYOUTS["inception"], FULL, [*lost, *both]), "cifar10").difference.startswith(
        "+0 "
    )


def test_a_run_that_diverged_reaches_nothing_however_low_it_was():
    claim = {"kind": "reaches", "methods": ["OLM"], "than": ["plain"], "within": 0.5}
    finals = {"plain": (90.0, 40.0, 30.0, 20.0), "OLM": (10.0,)}
    records = [
        errors_record("inception", label, curve, seed=seed, outcome="diverged" if label == "OLM" else "completed")
        for label, curve in finals.items()
        for seed in range(5)
    ]
    found = judge_column(claim, place(LAYOUTS["inception"], FULL, records), "cifar10")
    assert (found.answer, found.seeds) == ("does not hold", 5)
    assert found.numbers.startswith("OLM never (target 20.00)")


def test_a_run_that_diverged_ends_above_all_others():
    records = [
        *seeds_of("wrn", "OLM", (4.0,) * 5, model="wide-resnet"),
        *seeds_of("wrn", "plain", (3.0,) * 5, model="wide-resnet", outcome="diverged"),
    ]
    assert verdict("wrn", 0, records).answer == "holds"


def test_another_network_in_the_same_table_is_no_plain_to_compare_with():
    records = [
        *seeds_of("wrn", "OLM", (4.0,) * 5, model="wide-resnet"),
        *seeds_of("wrn", "plain", (5.0,) * 5, model="preresnet-cifar"),
    ]
    assert verdict("wrn", 0, records).numbers == "not run: plain"


def pie(errors: dict[str, float], experiment: str = "pie-groups") -> list[Record]:
    """Five seeds of each label; "OLM-16" is OLM with groups of 16."""
    found = []
    for label, error in errors.items():
        method, _, size = label.removesuffix("+batch").rpartition("-") if label[-1].isdigit() else (label, "", "")
        found += seeds_of(
            experiment,
            method.removesuffix("+batch"),
            (error,) * 5,
            dataset="pie",
            model="pie-mlp",
            model_args={"batch_norm": True} if label.endswith("+batch") else {},
            method_args={"group_size": int(size)} if size else {},
        )
    return found


GROUPS = {
    "plain": 9.0, "plain-he": 8.0, "plain-orthogonal": 7.5, "WN": 8.5,
    "OLM-16": 6.0, "OLM-32": 5.0, "OLM-64": 5.5, "OLM-128": 7.0, "OLM-scale-128": 4.0,
}  # fmt: skip
PIE: list[tuple[str, int, dict[str, float], str]] = [
    ("as the paper says 0", 0, GROUPS, "holds"),
    ("as the paper says 1", 1, GROUPS, "holds"),
    ("as the paper says 2", 2, GROUPS, "holds"),
    ("as the paper says 3", 3, GROUPS, "holds"),
    ("one group size is no better than WN", 0, GROUPS | {"OLM-128": 8.6}, "does not hold"),
    ("one group size is as good as WN", 0, GROUPS | {"OLM-128": 8.5}, "undecided"),
    ("128 is below one of the smaller and above the best", 1, GROUPS | {"OLM-128": 5.2}, "holds"),
    ("128 is as good as the best", 1, GROUPS | {"OLM-128": 5.0}, "undecided"),
    ("the scale does not help", 2, GROUPS | {"OLM-scale-128": 5.1}, "does not hold"),
    ("He initialization closes the gap", 3, GROUPS | {"plain-he": 3.9}, "does not hold"),
]


@pytest.mark.parametrize(("number", "errors", "answer"), [case[1:] for case in PIE], ids=[case[0] for case in PIE])
def test_claims_about_group_sizes(number: int, errors: dict[str, float], answer: str):
    assert verdict("pie-groups", number, pie(errors), key="pie").answer == answer


@pytest.mark.parametrize(
    ("weight_norm", "answer"),
    [(6.5, "holds"), (6.0, "holds"), (5.9, "does not hold")],
    ids=["worse", "equal", "better"],
)
def test_no_advantage_means_not_below(weight_norm: float, answer: str):
    records = pie({"plain+batch": 6.0, "WN+batch": weight_norm, "OLM+batch": 5.0}, "pie-batchnorm")
    assert verdict("pie-batchnorm", 1, records, key="pie").answer == answer
    assert verdict("pie-batchnorm", 0, records, key="pie").answer == "holds"


def test_of_several_rates_the_lowest_training_loss_is_judged_and_said():
    plain = seeds_of("wrn", "plain", (5.0,) * 5, model="wide-resnet")
    # The rate with the lower training error ends above plain on the test set, the other below.
    fitted = [errors_record("wrn", "OLM", (6.0,), train=(1.0,), lr=0.5, seed=s, model="wide-resnet") for s in range(5)]
    other = [errors_record("wrn", "OLM", (4.0,), train=(2.0,), lr=0.1, seed=s, model="wide-resnet") for s in range(5)]
    assert verdict("wrn", 0, [*plain, *fitted, *other]).answer == "does not hold"
    last = verdict_lines(place(LAYOUTS["wrn"], FULL, [*plain, *fitted, *other]))[-1]
    assert "several learning rates" in last
    assert last not in verdict_lines(place(LAYOUTS["wrn"], FULL, [*plain, *fitted]))


def test_a_learning_rate_that_one_seed_tried_does_not_stand_for_five():
    plain = seeds_of("wrn", "plain", (5.0,) * 5, model="wide-resnet")
    five = [errors_record("wrn", "OLM", (4.0,), train=(2.0,), lr=0.1, seed=s, model="wide-resnet") for s in range(5)]
    tried = errors_record("wrn", "OLM", (6.0,), train=(1.0,), lr=0.5, seed=0, model="wide-resnet")
    found = verdict("wrn", 0, [*plain, *five, tried])
    assert (found.answer, found.seeds) == ("holds", 5)
