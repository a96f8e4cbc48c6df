"""The processes that train one run together: who they are, and what they tell each other.

A process by itself is a group of one, for which every function here is the identity and no communication happens.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from orthonorm_paper.exceptions import UserError
from orthonorm_paper.training.settings import Settings

if TYPE_CHECKING:
    from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment

T = TypeVar("T")

_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def joined() -> bool:
    """Whether this process belongs to a group."""
    return dist.is_available() and dist.is_initialized()


def rank() -> int:
    """Number of this process in its group, from 0; the first one writes the records."""
    return dist.get_rank() if joined() else 0


def world() -> int:
    """Number of processes in the group."""
    return dist.get_world_size() if joined() else 1


def launcher() -> ClusterEnvironment | None:
    """Where a process belongs, by torchrun's variables (which ``launch`` sets too) or by Slurm's; None by itself."""
    from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
    from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment

    if all(name in os.environ for name in _VARIABLES):
        return TorchElasticEnvironment()
    # A batch script runs in one task too, unless it calls srun.
    slurm = SLURMEnvironment.detect() and int(os.environ["SLURM_NTASKS"]) > 1
    return SLURMEnvironment() if slurm else None


def join(settings: Settings) -> None:
    """Enter the group that the launcher prepared; nothing happens in a process by itself, or in it already.

    Raises:
        UserError: the group has another number of processes than the settings say, or another order.
    """
    if settings.processes == 1 and not joined():
        return
    if not joined():
        environment = launcher()
        assert environment is not None
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = environment.main_address, str(environment.main_port)
        # Lightning sets torch's threads where this is not set.
        os.environ.setdefault("OMP_NUM_THREADS", str(settings.threads))
        _check(environment.world_size(), settings)
        local, device = environment.local_rank(), settings.torch_device.type
        if environment.global_rank() % settings.devices != local:
            raise UserError(
                f"process {environment.global_rank()} has local number {local}, which {settings.devices} devices a "
                "node do not give: start as many processes on every node as --devices says"
            )
        if device == "cuda":
            torch.cuda.set_device(local)
        dist.init_process_group(
            "nccl" if device == "cuda" else "gloo",
            timeout=datetime.timedelta(seconds=settings.timeout),
            rank=environment.global_rank(),
            world_size=environment.world_size(),
        )
    _check(world(), settings)


def one_of_many(settings: Settings) -> bool:
    """Whether a launcher started this process as one behind the first: that one speaks for all."""
    environment = launcher() if settings.processes > 1 else None
    return environment is not None and environment.global_rank() > 0


def _check(processes: int, settings: Settings) -> None:
    if processes != settings.processes:
        raise UserError(
            f"devices times nodes is the number of processes, {processes} as they were started, "
            f"got {settings.devices} times {settings.nodes}"
        )


def agree(decide: Callable[[], T]) -> T:
    """The first process's answer, in all of them; the others do not ask the question."""
    if not joined():
        return decide()
    answer: list[Any] = [decide() if rank() == 0 else None]
    dist.broadcast_object_list(answer, 0)
    return answer[0]


def total(values: Tensor) -> Tensor:
    """Sum over the processes, a new tensor; the argument itself where there is one process."""
    if not joined():
        return values
    values = values.detach().clone()
    dist.all_reduce(values)
    return values


def everyones(value: T) -> list[T]:
    """The value of each process, in order."""
    values: list[Any] = [value]
    if joined():
        values = [None] * world()
        dist.all_gather_object(values, value)
    return values
