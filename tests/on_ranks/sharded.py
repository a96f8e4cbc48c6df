"""What a rank of sharded training does."""

from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as load_state
from torch.distributed.checkpoint.state_dict_saver import save as save_state
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode

import orthonorm as on
from on_ranks import networks
from on_ranks.data_parallel import said
from orthogonal_layers import free, weight
from orthonorm.distributed import shard_, sharded_params

M = TypeVar("M", bound=nn.Module)


def prepare(model: M, opted: bool, policy: MixedPrecisionPolicy | None = None) -> M:
    """Shard a model, its orthogonal weights by `shard_` or as `fully_shard` does."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    policy = policy or MixedPrecisionPolicy()
    # An argument that the oldest torch does not know, and that only `shard_` needs.
    ignored: dict[str, Any] = {"ignored_params": sharded_params(shard_(model, mesh, mp_policy=policy))} if opted else {}
    fully_shard(model, mesh=mesh, mp_policy=policy, **ignored)
    return model


def full(state: dict[str, Any]) -> dict[str, Tensor]:
    """Return a state whose tensors are whole."""
    return {k: (v.full_tensor() if isinstance(v, DTensor) else v).detach().clone() for k, v in state.items()}


def train_mixed(opted: bool, dtype: torch.dtype = torch.float32) -> Any:
    """Train the mixed network and return its whole state and this rank's rows of one V."""
    model = prepare(networks.mixed(dtype), opted)
    losses = networks.train(model, networks.sgd(model), networks.mixed_data())
    V = free(model.get_submodule("hidden"))
    assert isinstance(V, DTensor)
    return full(model.state_dict()), losses, tuple(V.to_local().shape)


def train_tokens(wrapped: tuple[str, ...]) -> Any:
    """Train the network of tokens under `fully_shard`, of the named parts first, and return its whole state."""
    model, mesh = networks.tokens(), init_device_mesh("cpu", (dist.get_world_size(),))
    for name in wrapped:
        fully_shard(model.get_submodule(name), mesh=mesh)
    fully_shard(model, mesh=mesh)
    losses = networks.train(model, networks.sgd(model), networks.mixed_data())
    model.to("cpu")  # a recurrent module looks at its weights here
    return full(model.state_dict()), losses


def train_mlp(widths: tuple[int, ...], group_size: int, opted: bool) -> Any:
    """Train a network of linear layers and return its whole state."""
    model = prepare(networks.mlp(widths, group_size=group_size), opted)
    losses = networks.train(model, networks.sgd(model), networks.mlp_data(widths[0], widths[-1]))
    return full(model.state_dict()), losses


def collectives(group_size: int) -> tuple[dict[str, int], list[tuple[str, torch.dtype, int]]]:
    """Return the collectives of one forward and backward, and (name, type, entries) of each that gathers."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = networks.Reader(networks.mlp((16, 16, 16, 3), group_size=group_size, scale=False))
    shard_(model, mesh)
    with CommDebugMode() as comms, networks.Gathered() as gathered:
        model().backward()
    return {str(name): count for name, count in comms.get_comm_counts().items()}, gathered.found


def gathered_in_training(group_size: int) -> list[tuple[str, torch.dtype, int]]:
    """Return what a training step under `fully_shard` exchanges."""
    model = prepare(networks.mlp((16, 16, 16, 3), group_size=group_size, scale=False), True)
    with networks.Gathered() as gathered:
        networks.train(model, networks.sgd(model), networks.mlp_data(16, 3), steps=1)
    return gathered.found


def mixed_precision() -> dict[str, Any]:
    """Return what types the parts of a step have under a policy, and how far its weights are from float32's."""
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = prepare(networks.mlp((6, 10, 8, 3), group_size=4, scale=False), True, policy)
    seen: list[Tensor] = []
    model[0].register_forward_hook(lambda layer, *_: seen.append(weight(layer).detach().clone()))
    x, y = networks.share(networks.mlp_data(6, 3))
    with networks.Gathered() as gathered:
        nn.functional.cross_entropy(model(x).float(), y).backward()
    V = free(model[0])
    assert isinstance(V.grad, DTensor)
    return {
        "W": seen[0],
        "V": V.dtype,
        "grad": V.grad.full_tensor(),
        "exchanged": {(name, dtype) for name, dtype, _ in gathered.found},
    }


def save(folder: str) -> dict[str, Tensor]:
    """Train two steps, save model and optimizer, and return the state after two more."""
    model = prepare(networks.mlp((6, 10, 8, 3), group_size=4), True)
    optimizer, data = networks.sgd(model), networks.mlp_data(6, 3)
    networks.train(model, optimizer, data, steps=2)
    states = get_state_dict(model, optimizer)
    save_state({"model": states[0], "optimizer": states[1]}, checkpoint_id=Path(folder))
    networks.train(model, optimizer, data, steps=2)
    return full(model.state_dict())


def load(folder: str) -> dict[str, Tensor]:
    """Load into a model of other values, on any number of ranks, and return the state after two more steps."""
    model = networks.mlp((6, 10, 8, 3), group_size=4)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1.0)
    model = prepare(model, True)
    optimizer = networks.sgd(model)
    states = get_state_dict(model, optimizer)
    found = {"model": states[0], "optimizer": states[1]}
    load_state(found, checkpoint_id=Path(folder))
    set_state_dict(model, optimizer, model_state_dict=found["model"], optim_state_dict=found["optimizer"])
    networks.train(model, optimizer, networks.mlp_data(6, 3), steps=2)
    return full(model.state_dict())


def outside() -> dict[str, Any]:
    """Return what a weight and the diagnostics are outside of a forward, and what plain sharding says there."""
    opted = prepare(networks.mlp((6, 10, 8, 3), group_size=4, scale=False), True)
    x, _ = networks.mlp_data(6, 3)
    scaled = prepare(networks.mlp((6, 10, 8, 3), group_size=4), True)
    opted.eval()
    with torch.no_grad():
        output = opted(x)
    plain = prepare(networks.mlp((6, 10, 8, 3), group_size=4, scale=False), False)
    return {
        "weight": weight(opted[0]).detach(),
        "errors": on.orthogonality_error(opted),
        "evaluated": output,
        "scaled": weight(scaled[0]).detach(),
        "report": str(on.inspect(scaled)),
        "renormalize": said(lambda: on.renormalize_(opted)),
        "fold": said(lambda: on.fold_(opted)),
        "read": said(lambda: weight(plain[0])),
        "inspect": said(lambda: on.inspect(plain)),
        "ours": sorted(name for name, p in opted.named_parameters() if p in sharded_params(opted)),
        "none": said(lambda: sharded_params(plain)),
    }


def refusals() -> dict[str, str]:
    """Return what each wrong call says, by its name in the test's table."""
    mesh = init_device_mesh("cpu", (2,))
    calls: dict[str, Any] = {
        "no mesh": lambda: shard_(networks.mlp((4, 3, 2)), dist.group.WORLD),  # type: ignore[arg-type]
        "two dimensions": lambda: shard_(networks.mlp((4, 3, 2)), init_device_mesh("cpu", (2, 1))),
        "plain": lambda: shard_(nn.Linear(4, 3), mesh),
        "transposed only": lambda: shard_(on.OrthogonalConvTranspose2d(4, 3, 2), mesh),
        "twice": lambda: shard_(shard_(networks.mlp((4, 3, 2)), mesh), mesh),
    }
    return {name: said(call) for name, call in calls.items()}


def adam(opted: bool) -> tuple[dict[str, Tensor], list[float]]:
    """Train with AdamW and clipped gradients, and return the state and the norms before clipping."""
    model = networks.mlp((6, 10, 7, 3))
    model = prepare(model, opted) if dist.is_initialized() else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    x, y = networks.share(networks.mlp_data(6, 3))
    norms = []
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.15)
        norms.append(float(norm.full_tensor() if isinstance(norm, DTensor) else norm))
        optimizer.step()
    return full(model.state_dict()), norms
