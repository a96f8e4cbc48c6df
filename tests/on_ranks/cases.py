"""What a rank does in the cases that users reported."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import orthonorm as on
from on_ranks import networks
from on_ranks.data_parallel import said
from on_ranks.sharded import prepare
from orthogonal_layers import weight
from orthonorm.distributed import tensor_parallel_


def first_layer(setup: str, group_size: int) -> tuple[Tensor, Tensor]:
    """Return the weight that the first layer computes with, whole, and the model's output, under a way to shard it."""
    model = networks.mlp((7, 24, 24, 3), group_size=group_size)
    if setup in ("fully_shard", "shard_"):
        model = prepare(model, setup == "shard_")
    elif dist.is_initialized():
        styles = {"0": "colwise", "2": "rowwise"}
        tensor_parallel_(model, init_device_mesh("cpu", (dist.get_world_size(),)), styles)
    layer = model[2] if setup == "rowwise" else model[0]
    seen: list[Tensor] = []

    def look(layer: nn.Module, *_: Any) -> None:
        W = weight(layer)
        seen.append((W.full_tensor() if isinstance(W, DTensor) else W).detach().clone())

    layer.register_forward_hook(look)
    output = model(networks.mlp_data(7, 3)[0])
    return seen[0], output.detach()


def refusals() -> dict[str, str]:
    """Return what each use of a part of a weight says, by its name in the test."""
    mesh = init_device_mesh("cpu", (2,))
    plain = nn.Sequential(nn.Linear(8, 6))
    fully_shard(plain, mesh=mesh)
    converted = nn.Sequential(on.OrthogonalLinear(8, 6))
    fully_shard(converted, mesh=mesh)
    shards = {"0.weight": plain.state_dict()["0.weight"], "0.bias": torch.zeros(6)}
    whole = nn.Sequential(on.OrthogonalLinear(8, 6))
    return {
        "converted after sharding": said(lambda: on.orthogonal_weight_norm(plain[0])),
        "a sharded V read outside": said(lambda: weight(converted[0])),
        "a checkpoint of shards": said(lambda: whole.load_state_dict(shards)),
    }
