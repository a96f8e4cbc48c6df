"""Records of the paper's other networks, made of given errors: synthetic numbers, and so they say."""

from collections.abc import Mapping, Sequence
from typing import Any

from orthonorm_paper.records.files import Record
from orthonorm_paper.records.run import Run
from paper_support.recorded import made

# Five errors with mean 10 and sample deviation sqrt(10 / 4) = 1.58.
FIVE = (8.0, 9.0, 10.0, 11.0, 12.0)


def errors_record(
    experiment: str,
    method: str,
    test: Sequence[float | None],
    *,
    train: Sequence[float | None] | None = None,
    top5: Sequence[float] | None = None,
    seconds: Sequence[float] | None = None,
    steps: int = 10,
    outcome: str = "completed",
    parameters: int = 1000,
    description: str = "made-up numbers",
    device: str = "no device",
    **fields: Any,
) -> Record:
    """Record with these errors, an epoch each; the training loss follows the training error."""
    given: dict[str, Any] = {
        "experiment": experiment,
        "dataset": "cifar10",
        "model": "vgg",
        "method": method,
        "lr": 0.1,
        "epochs": max(1, len(test)),
        "batch_size": 256,
    }
    run = Run(**(given | fields))
    header = {
        "kind": "header",
        "schema": 1,
        "id": run.id,
        "run": run.to_json(),
        "data": {"description": description, "digest": "none"},
        "steps_per_epoch": steps,
        "parameters": parameters,
        "versions": {"python": "3.11.0", "orthonorm": "0.1.0"},
        "commit": None,
        "device": device,
        "threads": 1,
        "started": "2026-01-01T00:00:00+00:00",
    }
    trained = train or test
    epochs = tuple(
        {
            "kind": "epoch",
            "epoch": i + 1,
            "step": steps * (i + 1),
            "lr": run.lr,
            "train_loss": None if (error_in_training := trained[i]) is None else error_in_training / 10,
            "train_error": trained[i],
            "test_loss": 1.0,
            "test_error": error,
            **({} if top5 is None else {"test_top5_error": top5[i]}),
            "orthogonality_error": 1e-7,
            "seconds": 1.0 if seconds is None else seconds[i],
        }
        for i, error in enumerate(test)
    )
    end = {
        "kind": "end",
        "outcome": outcome,
        "reason": None,
        "loss": None,
        "step": steps * len(test),
        "finished": "2026-01-01T00:00:00+00:00",
        "resumed": 0,
    }
    return made(header, *epochs, end)


def seeds_of(experiment: str, method: str, finals: Sequence[float], **fields: Any) -> list[Record]:
    """A record a seed: errors of 90, then 40, then these."""
    return [
        errors_record(experiment, method, (90.0, 40.0, final), train=(80.0, 20.0, 1.0), seed=seed, **fields)
        for seed, final in enumerate(finals)
    ]


def as_table_1_says(experiment: str = "vgg", count: int = 5, **fields: Any) -> list[Record]:
    """Errors for which every claim about the VGG-style network holds, on 8 epochs."""
    finals = {
        "plain": 20.0,
        "plain-he": 19.0,
        "plain-orthogonal": 19.5,
        "WN": 18.0,
        "OLM-L2": 17.0,
        "OLM-L4": 16.0,
        "OLM": 15.0,
        "OLM-scale": 15.5,
    }
    found = []
    for method, final in finals.items():
        # OLM has plain's final error in the second epoch of eight, the others in the seventh or last.
        curve = (90.0, 19.0, *(17.0,) * 5) if method == "OLM" else (90.0, *(50.0,) * 5, 21.0)
        found += [
            errors_record(experiment, method, [*(e + seed / 10 for e in curve), final + seed / 10], seed=seed, **fields)
            for seed in range(count)
        ]
    return found


def means(errors: Mapping[str, float], experiment: str = "vgg", seeds: int = 5, **fields: Any) -> list[Record]:
    """Records whose final errors are these in every seed."""
    return [r for method, final in errors.items() for r in seeds_of(experiment, method, [final] * seeds, **fields)]
