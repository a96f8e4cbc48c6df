"""The first line of a record: the run, and what else may have decided its result."""

from __future__ import annotations

import datetime
import functools
import importlib.metadata
import platform
import subprocess
from pathlib import Path

import torch

import orthonorm
from orthonorm_paper.data import Dataset, ImageFolders
from orthonorm_paper.records.lines import Data, Header
from orthonorm_paper.records.run import Run

from .settings import Settings

_PACKAGES = ("lightning", "numpy")


def header_of(
    run: Run, dataset: Dataset | ImageFolders, device: torch.device, settings: Settings, *, parameters: int
) -> Header:
    """Header of a run on this machine, now."""
    strategy = "fsdp" if settings.sharded else "ddp"
    return Header(
        id=run.id,
        run=run,
        data=Data(description=dataset.description, digest=dataset.digest),
        steps_per_epoch=dataset.count // run.batch_size,
        parameters=parameters,
        versions=versions(),
        commit=commit(),
        device=device_name(device),
        devices=(f"{settings.processes} ({strategy})",) if settings.processes > 1 else None,
        memory_format="channels_last" if settings.channels_last else None,
        threads=settings.threads,
        started=now(),
    )


def now() -> str:
    """Time of day in UTC, ISO 8601, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide results."""
    packages = {package: importlib.metadata.version(package) for package in _PACKAGES}
    # torch's own text names its build, which decides results too.
    own = {"orthonorm": orthonorm.__version__, "torch": str(torch.__version__)}
    return {"python": platform.python_version()} | own | packages


def device_name(device: torch.device) -> str:
    """Kind of the device with what decides its rounding."""
    if device.type == "cuda":
        return f"cuda ({torch.cuda.get_device_name(device)})"
    return f"{device.type} ({platform.machine()}, {torch.backends.cpu.get_cpu_capability()})"


@functools.cache
def commit() -> str | None:
    """Commit of the sources that run, "+" behind it if they were changed; None if not in git."""
    here = Path(__file__)

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(here.parent), *arguments]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    # An installed copy may lie inside somebody's repository without belonging to it.
    if git("ls-files", "--error-unmatch", here.name) is None:
        return None
    head = git("rev-parse", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", str(here.parents[1]))
    return head and head + ("+" if changed else "")
