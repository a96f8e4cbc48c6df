"""The rule of claims against scipy's permutation test and t interval, and the words that predicates are made of."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from orthonorm_paper.records.files import Record
from orthonorm_paper.records.stability import edges, guessing_loss, is_stable
from orthonorm_paper.reports.claims.rule import SeedAnswer, decide, interval, sign_flip
from orthonorm_paper.reports.figures.mean_curves import epochs_to
from paper_support.recorded import record


@pytest.mark.parametrize("count", [3, 5, 8, 10])
def test_the_sign_flip_test_is_scipy_s_exact_permutation_test(count: int):
    random = np.random.default_rng(count)
    for shift in (-0.5, 0.0, 0.5, 2.0):
        differences = random.normal(shift, 1.0, count)
        exact = stats.permutation_test(
            (differences,), np.mean, permutation_type="samples", n_resamples=10**9, alternative="greater"
        )
        assert sign_flip(differences.tolist()) == pytest.approx(exact.pvalue, abs=1e-12)


def test_the_interval_is_that_of_scipy_s_t_test():
    differences = [0.3, -0.1, 0.4, 0.2, 0.25]
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert interval(differences) == pytest.approx((expected.low, expected.high))
    assert interval([1.0]) == interval([1.0, math.inf]) == (-math.inf, math.inf)


ANSWERS: list[tuple[Sequence[bool | float], str]] = [
    ([0.1, 0.2, 0.3, 0.1, 0.4], "holds"),
    ([-0.1, -0.2, -0.3, -0.1, -0.4], "does not hold"),
    ([0.1, 0.2, 0.3, 0.1, -0.001], "undecided"),
    ([0.1, 0.2, 0.3, 0.1, 0.0], "undecided"),
    ([-0.1, -0.2, -0.3, -0.1, 0.0], "undecided"),
    ([9.0, 9.0, 9.0], "undecided"),
    ([math.inf, 0.1, 0.1, 0.1, 0.1], "holds"),
    ([math.inf, 0.1, 0.1, 0.1, -0.1], "undecided"),
    # Ten seeds may disagree: nine of ten with a small exception are enough, and an infinite exception is not.
    ([1.0] * 9 + [-0.5], "holds"),
    ([1.0] * 9 + [-math.inf], "undecided"),
    ([True] * 5, "holds"),
    ([False] * 6, "does not hold"),
    ([True] * 4 + [False], "undecided"),
    ([True] * 4, "undecided"),
    ([], "undecided"),
]


@pytest.mark.parametrize(("values", "answer"), ANSWERS, ids=[str(values) for values, _ in ANSWERS])
def test_the_rule_decides_as_it_says(values: Sequence[bool | float], answer: str):
    verdict = decide({}, [SeedAnswer(value) for value in values])
    assert (verdict.answer, verdict.seeds) == (answer, len(values))


STABLE: list[tuple[tuple[float | None, ...], bool, bool]] = [
    ((2.3, 1.0, 0.5), False, True),
    ((2.3, 0.26, 1.3), False, False),  # as EI+QR released at 0.1
    ((2.3, 0.5, 1.0), False, True),  # twice its lowest, not more
    ((2.3, 0.5, 1.001), False, False),
    ((2.3, 2.1), False, False),  # above 90% of log(10) = 2.072
    ((2.3, 2.07), False, True),
    ((2.3, 0.5), True, False),
    ((2.3, None, 0.5), False, False),
    ((), False, False),
]


@pytest.mark.parametrize(("losses", "diverged", "stable"), STABLE)
def test_stable_means_finite_learned_and_not_risen(losses: tuple[float | None, ...], diverged: bool, stable: bool):
    assert is_stable(record("OLM", 0.1, losses, diverged=diverged)) is stable


@pytest.mark.parametrize(("dataset", "classes"), [("cifar100-tune", 100), ("pie-synthetic", 68), ("mnist", 10)])
def test_guessing_has_the_logarithm_of_the_classes(dataset: str, classes: int):
    assert guessing_loss(dataset) == pytest.approx(-math.log(1 / classes))


def test_epochs_are_interpolated_between_ends_of_epochs():
    assert epochs_to([4.0, 2.0, 1.0], 3.0) == 1.5
    assert epochs_to([4.0, 2.0, 1.0], 5.0) == 1.0
    assert epochs_to([4.0, 2.0, 1.0], 1.0) == 3.0
    assert epochs_to([math.nan, 2.0], 3.0) == 2.0


def edge(losses: dict[float, float]) -> list[tuple[float, str]]:
    records: list[Record] = [record("OLM", lr, (2.3, loss), seed=s) for lr, loss in losses.items() for s in (0, 1)]
    return [(run.lr, side) for run, side in edges(records)]


def test_a_best_learning_rate_at_the_edge_is_listed():
    assert edge({0.1: 0.5, 0.5: 0.3, 1.0: 0.2}) == [(1.0, "highest")]
    assert edge({0.1: 0.1, 0.5: 0.3, 1.0: 0.2}) == [(0.1, "lowest")]
    assert edge({0.1: 0.5, 0.5: 0.1, 1.0: 0.2}) == []
    assert edge({0.1: 0.5}) == []
    # Never below 90% of guessing: exempt.
    assert edge({0.1: 2.3, 0.5: 2.2}) == []


def test_a_learning_rate_of_one_seed_is_no_best_at_an_edge():
    whole = [
        record("OLM", lr, (2.3, loss), seed=s) for lr, loss in ((0.1, 0.5), (0.5, 0.3), (1.0, 0.4)) for s in (0, 1)
    ]
    assert edges([*whole, record("OLM", 2.0, (2.3, 0.1), seed=0)]) == []
