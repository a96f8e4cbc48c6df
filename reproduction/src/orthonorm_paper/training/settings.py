"""`Settings`: how a run is executed; nothing here decides its result beyond rounding."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field

from orthonorm_paper.records.checked import Positive, Switch, Whole, checked

Seconds = Annotated[float, Field(strict=True, ge=0)]


@checked()
class Settings:
    """How a run is executed; nothing here decides its result beyond rounding.

    Args:
        device: "cpu", "cuda", or "auto" for cuda where there is one.
        threads: of torch, in each process, fixed for the whole run: sums are split by it.
        data: folder of the data sets' files.
        checkpoint_seconds: least time between two checkpoints within an epoch, and 0 for one after every step; None is
            half a minute, and ten for a data set of files. An epoch's end is another occasion, once a second at most.
        stop_at_step, deadline: save and stop after that step, or past that ``time.time()``.
        devices: of each node, a process for each; every batch of the run is divided among all devices.
        nodes: machines. With more than one, either a launcher (torchrun, srun) starts a process for each device, or
            the command is given once on every node under MASTER_ADDR, MASTER_PORT and NODE_RANK.
        strategy: "ddp" has the whole network on each device; "fsdp" divides weights, gradients and the optimizer's
            state (torch's ``fully_shard``); "auto" is ddp, and neither on one device.
        workers: processes that read a data set of files, of each device; a data set in memory has none.
        channels_last: memory format of images and convolutions.
        timeout: seconds for which a process waits for another one before the run ends with an error.

    Raises:
        UserError: an unknown or absent device, fewer than one thread, device or node, an unknown strategy.

    Examples:
        >>> Settings(device="cpu", devices=4, nodes=2).processes
        8
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: Positive = 1
    data: Path | None = None
    checkpoint_seconds: Seconds | None = None
    stop_at_step: Whole | None = None
    deadline: Seconds | None = None
    devices: Positive = 1
    nodes: Positive = 1
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    workers: Whole = 4
    channels_last: Switch = False
    timeout: Seconds = 1800.0

    def __post_init__(self) -> None:
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device cuda: torch finds no CUDA device here; use cpu or auto")
        if self.strategy != "auto" and self.processes == 1:
            raise ValueError(
                f"strategy {self.strategy} divides the work of several devices; got one. Give devices or auto."
            )
        if self.sharded and self.channels_last:
            raise ValueError("fsdp divides weights that are contiguous, not with channels last: give one of the two")
        if self.torch_device.type == "cuda" and self.devices > torch.cuda.device_count():
            raise ValueError(
                f"devices must be at most the {torch.cuda.device_count()} CUDA devices; got {self.devices}."
            )

    @property
    def torch_device(self) -> torch.device:
        """The kind of device that "auto" stands for here."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    @property
    def processes(self) -> int:
        """Processes that train one run together."""
        return self.devices * self.nodes

    @property
    def sharded(self) -> bool:
        """Whether each device holds a part of the weights only."""
        return self.strategy == "fsdp"
