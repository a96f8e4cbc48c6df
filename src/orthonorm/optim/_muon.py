"""Steepest descent in the spectral norm on the Stiefel manifold."""

from typing import Any

import torch
from torch import Tensor

from orthonorm.functional._option_types import RetractionName
from orthonorm.functional.stiefel._retractions import RETRACTIONS

from ._base import Params, check_number
from ._blocks import Blocks
from ._momentum import MomentumOptimizer, learning_rate
from ._steepest_tangent import steepest_tangent

__all__ = ["StiefelMuon"]

# A tangent part this many units of rounding small beside the gradient is rounding, and moves nothing.
_NOISE = 100.0
# What float32 and the iterations allow.
_LEAST_TOLERANCE = 1e-3


class StiefelMuon(MomentumOptimizer):
    r"""Muon that keeps `W W^T = I`: each step is the steepest one of spectral norm `eta`.

    For a weight (a group of rows, `n x d`) with gradient `G`, learning rate `eta` and momentum `mu`:

    `b <- mu T(b) + T(G)`, `W <- R_W(eta X)`,
    `X = argmin <b, X>` over `X W^T + W X^T = 0`, `|X|_2 <= 1`

    `T` is the projection onto the tangent space at `W` and `R` the retraction; with Nesterov `T(G) + mu b` stands in
    the last line instead of `b`. Every singular value of a step is at most `eta`, and most are `eta`. So the learning
    rate is an angle in radians, whatever the shape of the weight and the size of its gradient. A weight does not stop
    by itself where gradients become small: let the learning rate fall to 0.

    `X` is found by ascent on the dual problem. It is tangent to rounding, and its spectral norm is at most 1 (1.001 in
    float32). Its slope `-<b, X>` is within `tolerance` of the largest possible one, which the dual encloses, or as near
    as 100 iterations come. An iteration takes two eigendecompositions of `n x n` in float64. In our measurements a
    tolerance of 1% took 1 to 30 iterations for up to 128 rows, and 0.1% up to 100. A square weight takes one, and its
    `X` is exact.

    For matrices without the constraint take `torch.optim.Muon`. Shapes, groups, stacks, sharded weights, weights off
    the manifold at construction and gradients that are not finite are treated as in `StiefelSGD`.

    Args:
        params: parameters or parameter groups; a group may set every option below for itself.
        lr: learning rate, a number or a tensor of one element.
        momentum: factor of the buffer, in [0, 1) as a rule.
        nesterov: look ahead; needs momentum.
        weight_decay: for groups with `manifold=False` only, where the whole step is that of `torch.optim.SGD`.
        retraction: `"qr"`, `"polar"` or `"cayley"`.
        tolerance: how far from the steepest a direction may be, as a share of its slope; from 0.001 to 1.
        group_size: at most this many rows per group, or `None`.
        manifold: whether the weights of a group live on the manifold.
        stacked: whether each weight of a group is a stack `(E, n, d)` of matrices, such as the experts of a mixture.

    Raises:
        TypeError: a complex or half precision weight on the manifold, or one sharded on other than its rows.
        ValueError: an illegal option; a weight of fewer than two dimensions or with entries that are not finite;
            weight decay that would do nothing; a sharded weight of which a rank holds a part of a group.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> W = torch.nn.Parameter(torch.nn.init.orthogonal_(torch.empty(2, 6)))
        >>> optimizer = StiefelMuon([W], lr=0.1)
        >>> schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.95)
        >>> for _ in range(100):
        ...     optimizer.zero_grad()
        ...     (W[:, :2] ** 2).sum().backward()
        ...     optimizer.step()
        ...     schedule.step()
        >>> bool(W[:, :2].abs().max() < 0.1)
        True

    Source: Bernstein, Modular Manifolds, 2025, and the Modula documentation, "Stiefel manifold", 2025, which state the
    problem and its dual; Su, Steepest descent on manifolds 3: Muon + Stiefel, 2025, for the fixed point; Jordan et al.,
    Muon, 2024.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.95,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        retraction: RetractionName = "qr",
        tolerance: float = 0.01,
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
                "retraction": retraction,
                "tolerance": tolerance,
                "group_size": group_size,
                "manifold": manifold,
                "stacked": stacked,
            },
        )

    def _check_options(self, options: dict[str, Any]) -> None:
        super()._check_options(options)
        check_number("tolerance", options["tolerance"])
        if not _LEAST_TOLERANCE <= options["tolerance"] <= 1:
            raise ValueError(f"tolerance must be from {_LEAST_TOLERANCE} to 1; got {options['tolerance']}.")
        if options["retraction"] not in RETRACTIONS:
            raise ValueError(f"retraction must be one of {sorted(RETRACTIONS)}; got {options['retraction']!r}.")

    def _manifold_step(self, group: dict[str, Any], blocks: Blocks) -> None:
        W, G = blocks.stack(blocks.params), blocks.stack(blocks.grads)
        b = self._direction(group, blocks, W, G, "euclidean")
        noise = _NOISE * torch.finfo(W.dtype).eps * G.abs().amax((-2, -1), keepdim=True)
        X = steepest_tangent(W, b, noise, group["tolerance"])
        blocks.scatter(blocks.params, RETRACTIONS[group["retraction"]](W, X, learning_rate(group)))
