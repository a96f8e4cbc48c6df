"""Records made of given numbers, for tests of reports: synthetic, and so they say."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orthonorm_paper.records.files import Record
from orthonorm_paper.records.lines import parse_line, parts_of_record
from orthonorm_paper.records.run import Run
from orthonorm_paper.records.schedules import Halve

LOSSES = (2.3, 1.0)


def made(*lines: dict[str, Any]) -> Record:
    """The record that a file of these lines holds."""
    return Record(*parts_of_record(Path(), [parse_line(Path(), 0, json.dumps(line)) for line in lines]))


def changed(record: Record, **fields: Any) -> Record:
    """The same record with other fields in its header."""
    header, *rest = (line.to_json() for line in record.lines())
    return made(header | fields, *rest)


def record(
    method: str,
    lr: float,
    losses: Sequence[float | None] = LOSSES,
    *,
    seed: int = 0,
    depth: int = 4,
    batch: int = 256,
    diverged: bool = False,
    test_error: float = 10.0,
    experiment: str = "omdsm-5k",
) -> Record:
    """Record of a run with these training losses, an epoch each."""
    run = Run(
        experiment=experiment,
        dataset="mnist-5k",
        model="mlp",
        model_args={"hidden_layers": depth},
        method=method,
        lr=lr,
        schedule=Halve(1),
        epochs=max(len(losses), 2),
        batch_size=batch,
        seed=seed,
    )
    header = {
        "kind": "header",
        "schema": 1,
        "id": run.id,
        "run": run.to_json(),
        "data": {"description": "synthetic numbers", "digest": "none"},
        "steps_per_epoch": 15,
        "parameters": 1,
        "versions": {"python": "3.11.0", "orthonorm": "0.1.0"},
        "commit": None,
        "device": "none",
        "threads": 1,
        "started": "2026-01-01T00:00:00+00:00",
    }
    epochs = tuple(
        {
            "kind": "epoch",
            "epoch": number,
            "step": 15 * number,
            "lr": lr,
            "train_loss": loss,
            "train_error": 1.0,
            "test_loss": 1.0,
            "test_error": test_error + seed,
            "orthogonality_error": 1e-7,
            "seconds": 0.5,
        }
        for number, loss in enumerate(losses, 1)
    )
    end = {
        "kind": "end",
        "outcome": "diverged" if diverged else "completed",
        "reason": "loss is nan" if diverged else None,
        "loss": None,
        "step": 15 * len(losses) + diverged,
        "finished": "2026-01-01T00:00:00+00:00",
        "resumed": 0,
    }
    return made(header, *epochs, end)


def small_set() -> list[Record]:
    """A few cells of two depths: means, deviations, divergence of one and of all seeds, gaps."""
    cells = [
        record(method, lr, (2.3, loss + 0.01 * seed), seed=seed, test_error=error)
        for method, lr, loss, error in (
            ("plain", 0.1, 0.5, 9.0),
            ("plain", 0.5, 0.4, 8.0),
            ("plain-he", 0.1, 0.2, 7.0),
            ("EI+QR", 0.05, 0.9, 20.0),
            ("OLM", 0.1, 0.3, 7.5),
            ("OLM", 0.5, 0.1, 6.5),
        )
        for seed in (0, 1, 2)
    ]
    return [
        *cells,
        *(record("EI+QR", 0.5, (2.3, 3.0), seed=seed, diverged=seed == 1) for seed in (0, 1, 2)),
        *(record("OLM_var", 0.1, (), seed=seed, diverged=True) for seed in (0, 1, 2)),
        record("plain", 0.1, (2.3, None), depth=8),
    ]


def demo_set() -> list[Record]:
    """Every cell of the demo, with a better baseline than OLM in one seed, and one that diverged."""
    losses = {"plain": 2.3, "plain-he": 0.3, "plain-orthogonal": 0.1, "OLM-balanced": 0.05}
    errors = {"plain": 90.0, "plain-he": 9.0, "plain-orthogonal": 6.0, "OLM-balanced": 5.0}
    return [
        record(
            method,
            lr,
            (2.3, losses[method] * (1 + seed)),
            seed=seed,
            depth=8,
            test_error=errors[method] + 10 * lr * (method != "OLM-balanced"),
            diverged=method == "plain-he" and lr == 0.5 and seed == 0,
            experiment="demo",
        )
        for method in losses
        for lr in (0.2, 0.5)
        for seed in (0, 1, 2)
    ]
