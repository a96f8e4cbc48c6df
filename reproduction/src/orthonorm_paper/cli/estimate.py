"""Lines of `orthonorm-paper run NAME --dry-run`: the runs that would begin, and how long runs like them took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from orthonorm_paper.records.counting import counted
from orthonorm_paper.records.files import Record
from orthonorm_paper.records.folders import read_folder
from orthonorm_paper.records.run import Run
from orthonorm_paper.records.variations import base_name


def estimate(name: str, runs: Sequence[Run], results: Path, jobs: int) -> Iterator[str]:
    """A line for each run, then the sum.

    Seconds are those an epoch of the records of this experiment, or of the one that it varies: of the same network,
    batch and method where there are such, else of the network and batch.

    Args:
        name: the experiment.
        runs: what would be run.
        results: folder of the results.
        jobs: runs at the same time.
    """
    records = [record for own in dict.fromkeys((name, base_name(name))) for record in read_folder(results / own)]
    there = {record.run.id for record in records}
    pending = [run for run in runs if run.id not in there]
    total, unknown = 0.0, 0
    for run in pending:
        seconds = _seconds(run, records)
        total, unknown = total + (seconds or 0.0), unknown + (seconds is None)
        yield f"{run.id}  {'time unknown' if seconds is None else f'{seconds:.0f} s'}"
    yield f"{counted(len(pending), 'run')} of {len(runs)} would begin, in {results / name}"
    if unknown:
        yield f"no record says how long {counted(unknown, 'run')} take: an experiment on the same network would"
    if total:
        yield f"about {_duration(total / jobs)}, from recorded seconds, {counted(jobs, 'run')} at a time"


def _seconds(run: Run, records: Sequence[Record]) -> float | None:
    for keys in (("model", "model_args", "batch_size", "method", "method_args"), ("model", "model_args", "batch_size")):
        like = [r for r in records if r.epochs and all(getattr(r.run, key) == getattr(run, key) for key in keys)]
        if like:
            return run.epochs * sum(r.seconds for r in like) / sum(len(r.epochs) for r in like)
    return None


def _duration(seconds: float) -> str:
    """Seconds in a unit that suits them.

    Examples:
        >>> _duration(40.0), _duration(600.0), _duration(36000.0)
        ('40 s', '10 min', '10.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
