"""Orthogonalization shared among ranks; imported on use, since torch.distributed's parts take time to import."""

from .divide import divide_ as divide_
from .shard import shard_ as shard_
from .shard import sharded_params as sharded_params
