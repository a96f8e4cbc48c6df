"""Weights divided among the devices of a run by torch's ``fully_shard``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard


def shard_(network: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Divide parameters, gradients and what the optimizer keeps of them; a block is gathered when it computes.

    The blocks are the network's children, and what is in none of them. A parametrised weight is divided and gathered as
    ``V``, and computed from it whole.
    """
    for block in _blocks(network):
        fully_shard(block, mesh=mesh)
    fully_shard(network, mesh=mesh)
    return network


@contextlib.contextmanager
def gathered(network: nn.Module) -> Iterator[None]:
    """Weights whole inside, to be looked at; every process must come here. Nothing happens where none are divided."""
    units = [module for module in network.modules() if isinstance(module, FSDPModule)]
    for unit in units:
        unit.unshard()
    try:
        yield
    finally:
        for unit in units:
            unit.reshard()


def _blocks(network: nn.Module) -> Iterator[nn.Module]:
    for child in network.children():
        if isinstance(child, (nn.ModuleList, nn.ModuleDict)):
            yield from _blocks(child)
        elif next(child.parameters(), None) is not None:
            yield child
