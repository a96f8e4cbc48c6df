"""What a rank does that trains weights on the Stiefel manifold."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.debug import CommDebugMode
from torch.nn.parallel import DistributedDataParallel

import orthonorm as on
from on_ranks import networks
from on_ranks.data_parallel import said
from on_ranks.sharded import full


def network(first: int, second: int) -> nn.Sequential:
    """Return a plain network whose first two weights start on the manifold, in groups of four rows."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(9, first), nn.Tanh(), nn.Linear(first, second), nn.Tanh(), nn.Linear(second, 3))
    for layer in (model[0], model[2]):
        with torch.no_grad():
            layer.weight.copy_(on.functional.orthonormalize(layer.weight, group_size=4, center=False))  # type: ignore[operator, arg-type]
    return model


def optimizer(model: nn.Module, name: str) -> torch.optim.Optimizer:
    """Return an optimizer on the manifold for those two, with momentum, and plain SGD for the rest."""
    named = dict(model.named_parameters())
    weights = [p for name, p in named.items() if name.endswith(("0.weight", "2.weight"))]
    rest = [p for name, p in named.items() if not name.endswith(("0.weight", "2.weight"))]
    groups = [{"params": weights}, {"params": rest, "manifold": False}]
    return getattr(on, name)(groups, lr=0.1, momentum=0.9, group_size=4)


def train(setup: str, first: int, second: int, name: str = "StiefelSGD") -> tuple[dict[str, Tensor], dict[str, int]]:
    """Train the network, and return its state and the collectives of one more step of the optimizer."""
    model: nn.Module = network(first, second)
    run = model
    if setup == "data parallel":
        run = DistributedDataParallel(model)
    if setup == "fully_shard":
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optim = optimizer(model, name)
    networks.train(run, optim, networks.mlp_data(9, 3))
    state = full(model.state_dict())
    with CommDebugMode() as comms:
        optim.step()
    return state, {str(name): count for name, count in comms.get_comm_counts().items() if count}


def refusals() -> dict[str, str]:
    """Return what each wrong call says, by its name in the test's table."""
    mesh, square = init_device_mesh("cpu", (2,)), torch.eye(6, 8)
    rows, columns = (nn.Parameter(distribute_tensor(square, mesh, [Shard(dim)])) for dim in (0, 1))
    whole = nn.Parameter(distribute_tensor(square, mesh, [Replicate()]))
    calls: dict[str, Any] = {
        "cut": lambda: on.StiefelSGD([rows]),
        "cut groups": lambda: on.StiefelSGD([rows], group_size=2),
        "columns": lambda: on.StiefelSGD([columns]),
        "Adam": lambda: on.StiefelAdam([rows], group_size=3),
        "cut for Landing": lambda: on.Landing([rows]),
        "cut for Muon": lambda: on.StiefelMuon([rows]),
        "fits": lambda: on.StiefelSGD([rows], group_size=3),
        "replicated": lambda: on.StiefelSGD([whole]),
    }
    return {name: said(call) for name, call in calls.items()}
