"""Some of the runs of an experiment, by the values of their fields."""

from __future__ import annotations

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.records.run import Run


def select(runs: list[Run], only: list[str]) -> list[Run]:
    """Runs whose fields have the wanted values: ``only`` holds texts like ``method=OLM,plain``.

    Fields are those of ``Run`` and of its model and method arguments; numbers compare as numbers.

    Raises:
        UserError: no ``=``, a field that no run has, or nothing left.

    Examples:
        >>> from orthonorm_paper.experiments import experiment
        >>> [run.id for run in select(experiment("demo").runs(), ["method=plain", "lr=0.10", "seed=0,1"])]
        ['plain-mlp8-b256-lr0.1-s0-b49869eb', 'plain-mlp8-b256-lr0.1-s1-d5ebe319']
    """
    for condition in only:
        field, equals, values = condition.partition("=")
        if not equals or not field:
            raise UserError(f"--only takes FIELD=VALUE[,VALUE...]; got {condition!r}.")
        known = sorted({name for run in runs for name in _values(run)})
        if field not in known:
            raise UserError(f"--only {condition}: the runs have no {field}; {', '.join(known)}")
        wanted = values.split(",")
        there = sorted({str(_values(run).get(field)) for run in runs})
        runs = [run for run in runs if any(_equal(_values(run).get(field), w) for w in wanted)]
        if not runs:
            raise UserError(f"--only {condition} leaves no run; {field} is {', '.join(there)}")
    return runs


def _values(run: Run) -> dict[str, object]:
    data = run.to_json()
    nested = {**data.pop("model_args"), **data.pop("method_args")}
    del data["schedule"]
    return data | nested


def _equal(value: object, text: str) -> bool:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            return float(text) == value
        except ValueError:
            return False
    return str(value).lower() == text.lower()
