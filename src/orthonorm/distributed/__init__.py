"""Orthogonalization shared among ranks; imported on use, since torch.distributed's parts take time to import."""

from ._divide import divide_ as divide_
from ._plan import Plan as Plan
from ._plan import plan as plan
from ._shard import shard_ as shard_
from ._shard import sharded_params as sharded_params
from ._tensor_parallel import tensor_parallel_ as tensor_parallel_
