"""Adam on the Stiefel manifold, with one second moment a matrix."""

from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

from orthonorm.functional._option_types import MetricName, RetractionName
from orthonorm.functional.stiefel._layout import matrix_layout
from orthonorm.functional.stiefel._manifold import METRICS, project_tangent
from orthonorm.functional.stiefel._retractions import RETRACTIONS

from ._base import Params, StiefelOptimizer, check_number
from ._blocks import Blocks, grad_of
from ._momentum import learning_rate

__all__ = ["StiefelAdam"]


class StiefelAdam(StiefelOptimizer):
    r"""Adam that keeps `W W^T = I`, beside ordinary Adam for the other parameters.

    For a weight (a group of rows, `n x d`) on the manifold with gradient `G` at step `t`:

    `m <- beta1 T(m) + (1 - beta1) grad`, `v <- beta2 v + (1 - beta2) |grad|_F^2 / (n d)`,
    `W <- R_W(-eta (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps))`

    `grad`, `R` and `T` are those of `StiefelSGD`, with the same table of legal pairs. The second
    moment is one number a matrix, since a division entry by entry would leave the tangent space and
    depend on the basis. It is the mean over the entries, so that `eta` means what it means to Adam: a
    step changes an entry by about `eta` in the root mean square. The state of a weight is `step`,
    `exp_avg` (shaped like it) and `exp_avg_sq` (one number a group of rows).

    Shapes, groups, weights off the manifold at construction and gradients that are not finite are treated as in
    `StiefelSGD`.

    Args:
        params: parameters or parameter groups; a group may set every option below for itself.
        lr: learning rate, a number or a tensor of one element.
        betas: factors of the averages of the first and of the second moment, each in [0, 1).
        eps: added to the square root of the second moment.
        weight_decay: for groups with `manifold=False` only, where the whole step is that of
            `torch.optim.Adam`. On the manifold the norm of a weight is constant.
        metric: `"euclidean"`, `"canonical"` or `None`.
        retraction: `"qr"`, `"polar"` or `"cayley"`.
        group_size: at most this many rows per group, or `None`.
        manifold: whether the weights of a group live on the manifold.
        stacked: whether each weight of a group is a stack `(E, n, d)` of matrices, such as the experts of a mixture.

    Raises:
        TypeError: a complex, half precision or sharded weight on the manifold.
        ValueError: an illegal pair or option; a weight of fewer than two dimensions or with entries
            that are not finite; weight decay that would do nothing.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> W = torch.nn.Parameter(torch.nn.init.orthogonal_(torch.empty(2, 6)))
        >>> optimizer = StiefelAdam([W], lr=0.1, metric="canonical", retraction="cayley")
        >>> for _ in range(100):
        ...     optimizer.zero_grad()
        ...     (W[:, :2] ** 2).sum().backward()
        ...     optimizer.step()
        >>> bool(W[:, :2].abs().max() < 0.1)
        True

    Source: Kingma, Ba, Adam, 2015; one second moment a matrix as in Li, Li, Todorovic, Efficient Riemannian
    optimization on the Stiefel manifold via the Cayley transform, 2020, whose moment is the sum over the entries.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        metric: MetricName | None = "euclidean",
        retraction: RetractionName = "qr",
        group_size: int | None = None,
        manifold: bool = True,
        stacked: bool = False,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "metric": metric,
                "retraction": retraction,
                "group_size": group_size,
                "manifold": manifold,
                "stacked": stacked,
            },
        )

    def _check_options(self, options: dict[str, Any]) -> None:
        super()._check_options(options)
        betas = options["betas"]
        if not isinstance(betas, tuple | list):
            raise TypeError(f"betas must be two numbers in [0, 1); got {betas!r}. Pass betas=(0.9, 0.999).")
        for i, beta in enumerate(betas):
            check_number(f"betas[{i}]", beta)
        if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(f"betas must be two numbers in [0, 1); got {betas}. Pass betas=(0.9, 0.999).")
        check_number("eps", options["eps"])

    def _dense_for(self, group: dict[str, Any]) -> tuple[str, str] | None:
        return "StiefelAdam", "build the layer with sparse=False or give its weight to torch.optim.SparseAdam"

    def _begin_step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        for param in params:
            state = self.state[param]
            if "step" not in state:
                state["step"] = torch.zeros((), dtype=torch.float32)
                state["exp_avg"] = torch.zeros_like(param)
                count = matrix_layout(param.shape, group["group_size"], group["stacked"]).count
                state["exp_avg_sq"] = param.new_zeros(count)
            state["step"] += 1

    def _manifold_step(self, group: dict[str, Any], blocks: Blocks) -> None:
        states = [self.state[param] for param in blocks.params]
        W, G = blocks.stack(blocks.params), blocks.stack(blocks.grads)
        metric, (beta1, beta2) = group["metric"], group["betas"]
        grad = G if metric is None else METRICS[metric].gradient(W, G)

        averages = [state["exp_avg"] for state in states]
        m = blocks.stack(averages)
        m = (m if metric is None else project_tangent(W, m)).lerp(grad, 1 - beta1)
        blocks.scatter(averages, m)

        squares = [state["exp_avg_sq"][place.index] for state, place in zip(states, blocks.places, strict=True)]
        v = torch.stack(squares).lerp(grad.square().mean((-2, -1)), 1 - beta2)
        for square, value in zip(squares, v.unbind(0), strict=True):
            square.copy_(value)

        steps = [state["step"].item() for state in states]
        first = W.new_tensor([1 - beta1**t for t in steps])
        second = W.new_tensor([1 - beta2**t for t in steps])
        rate = -learning_rate(group) / (first * ((v / second).sqrt() + group["eps"]))
        step = RETRACTIONS[group["retraction"]](W, m, rate[:, None, None])
        blocks.scatter(blocks.params, step)

    def _euclidean_step(self, group: dict[str, Any], params: list[Tensor]) -> None:
        for param in params:
            state = self.state[param]
            if "step" not in state:
                state["step"] = torch.zeros((), dtype=torch.float32)
                state["exp_avg"] = torch.zeros_like(param)
                state["exp_avg_sq"] = torch.zeros_like(param)
        states = [self.state[param] for param in params]
        adam(
            params,
            [grad_of(param) for param in params],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            amsgrad=False,
            has_complex=any(param.is_complex() for param in params),
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            maximize=False,
        )
