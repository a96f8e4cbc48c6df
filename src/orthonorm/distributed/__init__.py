"""Orthogonalization shared among ranks; imported on use, since torch.distributed's parts take time to import."""

from .divide import divide_ as divide_
from .parallel import tensor_parallel_ as tensor_parallel_
from .plan import Plan as Plan
from .plan import plan as plan
from .shard import shard_ as shard_
from .shard import sharded_params as sharded_params
