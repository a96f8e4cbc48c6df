"""What a rank of tensor parallel training does."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.debug import CommDebugMode

import orthonorm as on
from on_ranks import networks
from on_ranks.data_parallel import said
from orthogonal_layers import weight
from orthonorm.distributed import tensor_parallel_
from orthonorm.distributed._columns import orthonormalize_columns


def whole(state: dict[str, Any]) -> dict[str, Tensor]:
    """Return a state whose tensors are whole."""
    return {k: (v.full_tensor() if isinstance(v, DTensor) else v).detach().clone() for k, v in state.items()}


def train(widths: tuple[int, ...], group_size: int, scale: bool, dtype: torch.dtype) -> dict[str, Tensor]:
    """Train a network whose first layer is colwise and second rowwise, all ranks on the whole batch."""
    model = networks.mlp(widths, group_size=group_size, scale=scale).to(dtype)
    x, y = networks.mlp_data(widths[0], widths[-1])
    if dist.is_initialized():
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        tensor_parallel_(model, mesh, {"0": "colwise", "2": "rowwise"})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9, foreach=False)
    for _ in range(4):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to(dtype)), y).backward()
        optimizer.step()
    state = dict(model.state_dict())
    state["W0"], state["W2"] = weight(model[0]), weight(model[2])
    return whole(state)


def exchanged(style: str) -> dict[str, int]:
    """Return the collectives of reading one weight, forward and backward."""
    model = networks.mlp((16, 8, 3), group_size=2, scale=False, center=True)
    tensor_parallel_(model, init_device_mesh("cpu", (dist.get_world_size(),)), {"0": style})
    with CommDebugMode() as comms:
        W = weight(model[0])
        assert isinstance(W, DTensor)
        W.to_local().square().sum().backward()
    return {str(name): count for name, count in comms.get_comm_counts().items() if count}


def second_order(center: bool) -> list[Tensor]:
    """Return value, gradient and gradient of a gradient of a function of a matrix spread by columns, all whole."""
    generator = torch.Generator().manual_seed(3)
    V, G = (torch.randn(7, 10, generator=generator, dtype=torch.float64) for _ in range(2))
    sizes = (4, 3)
    if not dist.is_initialized():
        V.requires_grad_()
        parts = [on.functional.orthonormalize(v, center=center) for v in V.split(sizes)]
        W = torch.cat(parts)
        (first,) = torch.autograd.grad((W * G).tanh().sum(), V, create_graph=True)
        (second,) = torch.autograd.grad((first * G).sin().sum(), V)
        return [W.detach(), first.detach(), second]
    ranks, rank = dist.get_world_size(), dist.get_rank()
    v, g = (X.tensor_split(ranks, 1)[rank].clone() for X in (V, G))
    v.requires_grad_()
    group = dist.group.WORLD
    assert group is not None
    W = orthonormalize_columns(v, sizes, group, d=10, center=center)
    (first,) = torch.autograd.grad((W * g).tanh().sum(), v, create_graph=True)
    (second,) = torch.autograd.grad((first * g).sin().sum(), v)
    return [W.detach(), first.detach(), second]


def ill_conditioned() -> Tensor:
    """Return this rank's columns of the orthonormal matrix of one whose condition number is 1e5."""
    generator = torch.Generator().manual_seed(4)
    U, R = (torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))[0] for n in (6, 10))
    V = (U * torch.logspace(0, -5, 6, dtype=torch.float64)) @ R[:6]
    assert dist.group.WORLD is not None
    v = V.tensor_split(dist.get_world_size(), 1)[dist.get_rank()].contiguous()
    return orthonormalize_columns(v, (6,), dist.group.WORLD, d=10, center=False)


def refusals() -> dict[str, str]:
    """Return what each wrong call says, by its name in the test's table."""
    mesh = init_device_mesh("cpu", (2,))
    cut = networks.mlp((9, 10, 8, 3), group_size=4)
    calls: dict[str, Any] = {
        "no mesh": lambda: tensor_parallel_(cut, dist.group.WORLD, {}),  # type: ignore[arg-type]
        "two dimensions": lambda: tensor_parallel_(cut, init_device_mesh("cpu", (2, 1)), {}),
        "cut": lambda: tensor_parallel_(cut, mesh, {"0": "colwise"}),
        "style": lambda: tensor_parallel_(cut, mesh, {"0": "columns"}),
        "name": lambda: tensor_parallel_(cut, mesh, {"9": "colwise"}),
        "plain": lambda: tensor_parallel_(cut, mesh, {"4": "colwise"}),
        "sizes": lambda: orthonormalize_columns(torch.ones(3, 4), (2, 2), mesh.get_group(), d=8),
    }
    return {name: said(call) for name, call in calls.items()}
