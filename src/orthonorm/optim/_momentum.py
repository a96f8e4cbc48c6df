"""Methods with one buffer a weight: momentum on the manifold, and torch's SGD for the other groups."""

from typing import Any

import torch
from torch import Tensor
from torch.optim.sgd import sgd

from orthonorm.functional._option_types import MetricName
from orthonorm.functional.stiefel._manifold import METRICS, project_tangent

from ._base import StiefelOptimizer, check_number
from ._blocks import Blocks, grad_of

__all__ = ["MomentumOptimizer", "learning_rate"]


class MomentumOptimizer(StiefelOptimizer):
    """An optimizer with the options `momentum` and `nesterov`, whose ordinary groups are those of `torch.optim.SGD`."""

    _takes_shards = True

    def _check_options(self, options: dict[str, Any]) -> None:
        super()._check_options(options)
        check_number("momentum", options["momentum"])
        if options["nesterov"] and options["momentum"] == 0:
            raise ValueError("momentum must be above 0 with nesterov=True; got 0. Pass momentum=0.9 or nesterov=False.")

    def _dense_for(self, group: dict[str, Any]) -> tuple[str, str] | None:
        if group["manifold"]:
            return "a weight on the manifold", "build the layer with sparse=False or set manifold=False for this group"
        if group["weight_decay"] != 0:
            return "weight decay", "build the layer with sparse=False or set weight_decay=0 for this group"
        return None

    def _begin_step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        if group["momentum"] == 0:
            return
        for param in params:
            if "momentum_buffer" not in self.state[param]:
                self.state[param]["momentum_buffer"] = torch.zeros_like(param)

    def _direction(
        self, group: dict[str, Any], blocks: Blocks, W: Tensor, G: Tensor, metric: MetricName | None
    ) -> Tensor:
        """The gradient seen through the metric, or what momentum makes of it; the buffers are advanced."""
        momentum = group["momentum"]
        if momentum == 0:
            return G if metric is None else METRICS[metric].gradient(W, G)
        buffers = [self.state[param]["momentum_buffer"] for param in blocks.params]
        B = _accumulate(W, G, blocks.stack(buffers), momentum, metric)
        blocks.scatter(buffers, B)
        return _accumulate(W, G, B, momentum, metric) if group["nesterov"] else B

    def _euclidean_step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        buffers = [self.state[param].get("momentum_buffer") for param in params]
        sgd(
            params,
            [grad_of(param) for param in params],
            buffers,
            has_sparse_grad=any(grad_of(param).is_sparse for param in params),
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            lr=group["lr"],
            dampening=0,
            nesterov=group["nesterov"],
            maximize=False,
        )
        if group["momentum"] != 0:
            for param, buffer in zip(params, buffers, strict=True):
                self.state[param]["momentum_buffer"] = buffer


def learning_rate(group: dict[str, Any]) -> float | Tensor:
    """The learning rate of a group, without the dimensions that a tensor of one element may have."""
    return group["lr"].squeeze() if isinstance(group["lr"], Tensor) else group["lr"]


def _accumulate(W: Tensor, G: Tensor, B: Tensor, mu: float, metric: MetricName | None) -> Tensor:
    """`grad + mu T(B)`."""
    if metric is None:
        return torch.add(G, B, alpha=mu)
    if metric == "euclidean":
        # The gradient is the same projection, which is linear: two products instead of four.
        return project_tangent(W, torch.add(G, B, alpha=mu))
    return torch.add(METRICS[metric].gradient(W, G), project_tangent(W, B), alpha=mu)
