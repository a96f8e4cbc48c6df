"""What the records of a way on a problem say: its best learning rate, and the figures there."""

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orthonorm_paper.reports.figures.mean_curves import epochs_to

from .runs import RATES, SEEDS, next_runs

__all__ = ["TARGETS", "Records", "Summary", "summaries"]

# Test errors in percent, fixed before the runs.
TARGETS = {"mlp8": 8.0, "rows-5k": 20.0, "vgg-5k": 10.0}

Records = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Summary:
    """One way on one problem, at the learning rate with the lowest mean training loss of those that all seeds ran."""

    problem: str
    way: str
    lr: float
    test_errors: dict[int, float]
    train_loss: float
    orthogonality_error: float
    epochs_to_target: float
    good_rates: tuple[float, float]
    at_edge: bool

    @property
    def test_error(self) -> float:
        """Mean over the seeds, in percent."""
        return statistics.fmean(self.test_errors.values())


def summaries(records: Records) -> dict[tuple[str, str], Summary]:
    """Every way on a problem of which no run is missing: one that is half tuned would be compared unfairly."""
    by: dict[tuple[str, str], dict[float, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        by[record["problem"], record["way"]][record["lr"]].append(record)
    found = {}
    for (problem, way), tried in by.items():
        if not next_runs(problem, way, [run for runs in tried.values() for run in runs]):
            whole = {lr: runs for lr, runs in tried.items() if {run["seed"] for run in runs} == set(SEEDS)}
            found[problem, way] = _summary(problem, way, tried, whole)
    return found


def _summary(
    problem: str,
    way: str,
    tried: Mapping[float, list[Mapping[str, Any]]],
    whole: Mapping[float, list[Mapping[str, Any]]],
) -> Summary:
    losses = {lr: _mean(runs, "train_loss") for lr, runs in whole.items()}
    best = min(losses, key=losses.__getitem__)
    runs = sorted(whole[best], key=lambda run: run["seed"])
    errors = {lr: _mean(runs, "test_error") for lr, runs in tried.items()}
    good = [lr for lr, error in errors.items() if error <= 1.1 * errors[best]]
    return Summary(
        problem=problem,
        way=way,
        lr=best,
        test_errors={run["seed"]: run["epochs"][-1]["test_error"] for run in runs},
        train_loss=losses[best],
        orthogonality_error=max(epoch["orthogonality_error"] for run in runs for epoch in run["epochs"]),
        epochs_to_target=statistics.fmean(
            epochs_to([epoch["test_error"] for epoch in run["epochs"]], TARGETS[problem]) for run in runs
        ),
        good_rates=(min(good), max(good)),
        at_edge=best in (RATES[0], RATES[-1]),
    )


def _mean(runs: Records, field: str) -> float:
    return statistics.fmean(run["epochs"][-1][field] for run in runs)
