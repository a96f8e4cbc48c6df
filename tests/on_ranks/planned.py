"""What a rank counts while it maps the weights of a large network once, forward and backward."""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.utils.flop_counter import FlopCounterMode

from on_ranks import networks
from orthonorm.distributed import divide_, shard_


def measured(name: str, setup: str) -> tuple[int, int, int]:
    """Return the operations, the bytes sent and the collectives of one step's transformation on this rank."""
    world = dist.get_world_size()
    reader = networks.Reader(networks.large(name))
    if setup == "divide":
        divide_(reader)
    else:
        shard_(reader, init_device_mesh("cpu", (world,)))
    with networks.Gathered() as gathered, FlopCounterMode(display=False) as counter:
        reader().backward()
    sent = 0
    for kind, dtype, entries in gathered.found:
        # A ring sends all of the buffer but a rank's own part of it; the rest is sent as it is.
        sent += dtype.itemsize * (
            entries * (world - 1) // world if kind in ("allgather", "reduce_scatter") else entries
        )
    return counter.get_total_flops(), sent, len(gathered.found)
