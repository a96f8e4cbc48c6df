"""What a rank of data parallel training does."""

import copy
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import orthonorm as on
from on_ranks import networks
from orthogonal_layers import free, weight
from orthonorm.distributed import divide_, shard_, tensor_parallel_


def first_weights() -> dict[str, Tensor]:
    """Return the weights that the first forward computes with."""
    model = networks.mixed()
    if dist.is_initialized():
        divide_(model)
    seen: dict[str, Tensor] = {}

    def look(layer: nn.Module, *_: Any) -> None:
        seen[names[layer]] = weight(layer).detach().clone()

    names = {model.get_submodule(name): name for name in ("conv", "grouped", "up", "hidden", "embed")}
    for layer in names:
        layer.register_forward_hook(look)
    model(networks.share(networks.mixed_data())[0])
    return seen


def train_mixed(divided: bool, ignored: bool = True, dtype: torch.dtype = torch.float32, mib: float = 25.0) -> Any:
    """Train the mixed network and return its state."""
    model = networks.mixed(dtype)
    if dist.get_rank() > 0:  # the first rank's V is taken
        with torch.no_grad():
            free(model.get_submodule("conv")).add_(1.0)
    if divided:
        divide_(model, bucket_mib=mib)
        if not ignored:
            del model._ddp_params_and_buffers_to_ignore
    ddp = DistributedDataParallel(model)
    losses = networks.train(ddp, networks.sgd(ddp), networks.mixed_data())
    return networks.plain_state(model), losses


def first_entry(model: nn.Sequential) -> Tensor:
    """Return a number that depends on an orthogonal weight, read outside of the model's forward."""
    return weight(model[2])[0, 0]


def train_compiled(compiled: bool) -> dict[str, Tensor]:
    """Train a divided network, compiled or not, and return its state."""
    model = divide_(networks.mlp((6, 10, 7, 3)))
    ddp = DistributedDataParallel(model)
    run = torch.compile(ddp, backend="eager") if compiled else ddp
    networks.train(run, networks.sgd(ddp), networks.mlp_data(6, 3))  # type: ignore[arg-type]
    return networks.plain_state(model)


def train_in_pairs() -> dict[str, Tensor]:
    """Train the mixed network, its transformation divided in each pair of ranks, and return its state."""
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    model = divide_(networks.mixed(), pairs[dist.get_rank() // 2])  # type: ignore[arg-type]
    ddp = DistributedDataParallel(model)
    networks.train(ddp, networks.sgd(ddp), networks.mixed_data())
    return networks.plain_state(model)


class Checkpointed(nn.Sequential):
    """A network that computes its first layers again in the backward."""

    def forward(self, input: Tensor) -> Tensor:
        """Run all but the last layer under activation checkpointing."""
        hidden = checkpoint(lambda x: nn.Sequential.forward(self[:-1], x), input, use_reentrant=False)
        return self[-1](hidden)


def gradients(what: str) -> dict[str, Tensor]:
    """Return the gradients after one backward of a variant of the training step."""
    model = networks.mlp((6, 10, 7, 3))
    if what == "checkpointed":
        model = Checkpointed(*model)
    if dist.is_initialized():
        divide_(model, bucket_mib=1e-6 if what == "buckets" else 25.0)
        model = copy.deepcopy(model) if what == "copied" else model
    if what == "folded":
        on.fold_(model)
    if dist.is_initialized():
        run: nn.Module = DistributedDataParallel(model)
    else:
        run = model
    x, y = networks.share(networks.mlp_data(6, 3))
    penalty = first_entry(model) * x.mean() if what == "penalty before" else 0
    with on.cached(model) if what == "cached together" else nullcontext():
        loss = nn.functional.cross_entropy(run(x), y) + penalty
    if what == "penalty after":
        loss = loss + first_entry(model) * x.mean()
    if what == "two forwards":
        loss = loss + nn.functional.cross_entropy(run(2 * x), y)
    loss.backward()
    if what == "accumulated":
        nn.functional.cross_entropy(run(-x), y).backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def alone() -> list[Any]:
    """Evaluate, inspect and fold on one rank only, while the others wait at the end."""
    model = divide_(networks.mlp((6, 10, 7, 3)))
    x, y = networks.mlp_data(6, 3)
    networks.train(DistributedDataParallel(model), networks.sgd(model), (x, y), steps=1)
    found: list[Any] = []
    if dist.get_rank() == 0:
        model.eval()
        with torch.no_grad():
            found = [model(x)]
        model.train()
        found += [on.orthogonality_error(model), on.fold(model)(x), copy.deepcopy(model)(x)]
    dist.barrier()
    found.append(on.fold_(model)(x))
    return [value.detach() if isinstance(value, Tensor) else value for value in found]


def refusals() -> dict[str, str]:
    """Return what each wrong call says, by its name in the test's table."""
    layer = nn.Sequential(on.OrthogonalLinear(8, 4))
    others: list[Any] = [dist.new_group([rank]) for rank in (0, 1)]
    calls: dict[str, Any] = {
        "plain model": lambda: divide_(nn.Linear(8, 4)),
        "not a module": lambda: divide_(3),  # type: ignore[arg-type]
        "divided twice": lambda: divide_(divide_(layer)),
        "meta": lambda: divide_(nn.Sequential(on.OrthogonalLinear(8, 4, device="meta"))),
        "no size": lambda: divide_(layer, bucket_mib=0.0),
        "a size that is no number": lambda: divide_(layer, bucket_mib="25"),  # type: ignore[arg-type]
        "another group": lambda: divide_(layer, others[1 - dist.get_rank()]),
        "other models": lambda: divide_(nn.Sequential(on.OrthogonalLinear(8, 3 + dist.get_rank()))),
        "second derivatives": lambda: twice(divide_(nn.Sequential(on.OrthogonalLinear(8, 4)))),
    }
    return {name: said(call) for name, call in calls.items()}


def refused_columns() -> list[str]:
    """Return what each way to share the work says of a weight with orthonormal columns."""
    config, mesh = on.OrthogonalConfig(tall="columns"), init_device_mesh("cpu", (1,))
    model = on.orthogonalize_(nn.Sequential(nn.Linear(4, 12), nn.Linear(12, 3)), config)
    calls = lambda: divide_(model), lambda: shard_(model, mesh), lambda: tensor_parallel_(model, mesh, {"0": "colwise"})
    return [said(call) for call in calls]


def said(call: Any) -> str:
    """Return the type and the text of the error that a call raises."""
    try:
        call()
    except (ValueError, TypeError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was raised"


def twice(model: nn.Module) -> None:
    """Differentiate a gradient of V once more."""
    loss = model(torch.ones(2, 8)).square().sum()
    (grad,) = torch.autograd.grad(loss, list(model.parameters())[-1:], create_graph=True)
    grad.square().sum().backward()


def without_group() -> str:
    """Return what `divide_` says where no process group is initialised."""
    return said(lambda: divide_(nn.Sequential(on.OrthogonalLinear(8, 4))))
