"""Stochastic gradient descent on the Stiefel manifold."""

from typing import Any

from torch import Tensor

from orthonorm.functional._option_types import MetricName, RetractionName
from orthonorm.functional.stiefel._retractions import RETRACTIONS

from ._base import Params
from ._blocks import Blocks
from ._momentum import MomentumOptimizer, learning_rate

__all__ = ["StiefelSGD"]


class StiefelSGD(MomentumOptimizer):
    r"""SGD that keeps `W W^T = I`, beside ordinary SGD for the other parameters.

    Use it for plain weights that must stay orthonormal, with a learning rate that falls during training, as by a
    schedule of `torch.optim.lr_scheduler`.

    For a weight on the manifold with gradient `G`, learning rate `eta` and momentum `mu`:

    `b <- mu T(b) + grad`, `W <- R_W(-eta b)`; with Nesterov `W <- R_W(-eta (grad + mu b))`

    `grad` is `G` seen through the metric, `R` the retraction, `T` the projection onto the tangent
    space at `W`, which is idempotent. The buffer is transported when it is used, so a weight that
    was changed between two steps cannot leave it off the tangent space. Without momentum the legal
    pairs are

    | metric | retraction | `W <-` |
    |---|---|---|
    | euclidean | qr | `qf(W - eta (G - 1/2 (G W^T + W G^T) W))` |
    | euclidean | polar | `polar(W - eta (G - 1/2 (G W^T + W G^T) W))` |
    | canonical | qr | `qf(W - eta (G - W G^T W))` |
    | canonical | polar | `polar(W - eta (G - W G^T W))` |
    | canonical | cayley | `W (I + eta/2 A) (I - eta/2 A)^{-1}, A = G^T W - W^T G` |
    | None | qr | `qf(W - eta G)` |
    | None | polar | `polar(W - eta G)` |

    `qf` is the orthogonal factor with a positive diagonal of the triangular one, `polar` the nearest
    orthonormal matrix. With `metric=None` the momentum is the plain sum of gradients. The paper's
    EI+QR is (euclidean, qr) and its CI+QR (canonical, qr); its appendix gives each metric the other's formula.
    For a square weight the canonical gradient is twice the euclidean one: the metrics differ by a factor of 2 in `lr`.

    Of a weight that `fully_shard` has sharded on rows (DTensor) each rank steps the groups it holds,
    without communication, where every group is whole on one rank.

    A weight is flattened to `n x d` (a convolution kernel to `(out, in/groups * k * k)`) and its
    rows are orthonormal; a tall one (`n > d`) has orthonormal columns. With `group_size` the rows are
    split into groups of at most that size, orthonormal by themselves, wide or tall. A transposed
    convolution stores its input channels first, and those are its rows here. A group with `stacked=True` holds stacks
    `(E, n, d)`, of which each matrix is on the manifold by itself; without it, three dimensions are those of a
    one-dimensional convolution. Weights off the
    manifold at construction are replaced by the nearest ones on it, with a warning. Groups of equal
    shape are stepped as one batch. A gradient that is not finite makes its group NaN and leaves the
    others right; a step so long that `W + Z` loses its rank leaves the group where it is.

    Args:
        params: parameters or parameter groups; a group may set every option below for itself.
        lr: learning rate, a number or a tensor of one element.
        momentum: factor of the buffer, in [0, 1) as a rule.
        nesterov: look ahead; needs momentum.
        weight_decay: for groups with `manifold=False` only, where the whole step is that of
            `torch.optim.SGD`. On the manifold the norm of a weight is constant.
        metric: `"euclidean"`, `"canonical"` or `None`.
        retraction: `"qr"`, `"polar"` or `"cayley"`.
        group_size: at most this many rows per group, or `None`.
        manifold: whether the weights of a group live on the manifold.
        stacked: whether each weight of a group is a stack `(E, n, d)` of matrices, such as the experts of a mixture.

    Raises:
        TypeError: a complex or half precision weight on the manifold, or one sharded on other than its rows.
        ValueError: an illegal pair or option; a weight of fewer than two dimensions or with entries
            that are not finite; weight decay that would do nothing; a sharded weight of which a rank
            holds a part of a group.

    Examples:
        >>> import torch
        >>> net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
        >>> for weight in (net[0].weight, net[2].weight):
        ...     _ = torch.nn.init.orthogonal_(weight)
        >>> orthogonal = {"params": [net[0].weight, net[2].weight], "momentum": 0.9}
        >>> rest = {"params": [net[0].bias, net[2].bias], "manifold": False, "weight_decay": 1e-4}
        >>> optimizer = StiefelSGD([orthogonal, rest], lr=0.1)
        >>> net(torch.ones(3, 8)).square().sum().backward()
        >>> optimizer.step()
        >>> W = net[0].weight
        >>> bool((W @ W.mT - torch.eye(4)).abs().max() < 1e-6)
        True

    Source: The paper's appendix on Riemannian optimization; Absil, Mahony, Sepulchre, Optimization Algorithms on
    Matrix Manifolds, 2008, chapters 3, 4 and 8; Mathematics (8) and (9).
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        nesterov: bool = False,
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
                "momentum": momentum,
                "nesterov": nesterov,
                "weight_decay": weight_decay,
                "metric": metric,
                "retraction": retraction,
                "group_size": group_size,
                "manifold": manifold,
                "stacked": stacked,
            },
        )

    def _manifold_step(self, group: dict[str, Any], blocks: Blocks) -> None:
        W, G = blocks.stack(blocks.params), blocks.stack(blocks.grads)
        direction = self._direction(group, blocks, W, G, group["metric"])
        blocks.scatter(blocks.params, RETRACTIONS[group["retraction"]](W, direction, -learning_rate(group)))
