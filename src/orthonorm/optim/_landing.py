"""Descent that is attracted by the Stiefel manifold instead of put back onto it."""

from typing import Any

import torch
from torch import Tensor

from orthonorm.functional._precision import working_dtype
from orthonorm.functional.stiefel._manifold import project
from orthonorm.functional.stiefel._retractions import retract_polar

from ._base import Params, check_number
from ._blocks import Blocks, batches
from ._momentum import MomentumOptimizer, learning_rate

__all__ = ["Landing"]

# Below this the rounding of W W^T in float32 alone, with thousands of rows, could be as far.
_LEAST_EPS = 1e-3
# Safe steps are computed for this share of eps, so that their rounding does not lead beyond eps.
_INSIDE = 0.999


class Landing(MomentumOptimizer):
    r"""SGD near the Stiefel manifold: matrix products only, `|W W^T - I|_F <= eps` at every step.

    For a weight (a group of rows, `n x d`) with gradient `G`, learning rate `eta` and momentum `mu`:

    `b <- mu b + G`, `W <- W - t (W skew(W^T b) + lambda (W W^T - I) W)`, `t = min(eta, safe)`

    `skew(M) = (M - M^T) / 2`. On the manifold the first term is half the canonical gradient of `b`; with Nesterov
    `G + mu b` stands there instead of `b`. The second term attracts to the manifold. The safe step, at most
    `1 / (2 lambda)`, keeps the group within `eps`. It is computed for each group from its distance and the size of its
    step; see Note [The safe step].

    **The weights are not orthonormal during training.** They are as far from it as the step is long, within `eps`, and
    land as the learning rate falls. Read `orthogonality_error(optimizer)` on the way, and call `project_()` at the end:
    it puts each weight on the manifold. Where weights must be orthonormal at each step, take `StiefelSGD`. A step takes
    four matrix products and no factorization.

    A weight that something else has moved farther than `eps`, such as a checkpoint that was loaded, is put on the
    manifold before its next step.

    Shapes, groups, stacks, sharded weights and gradients that are not finite are treated as in `StiefelSGD`. At
    construction a weight within `eps` stays as it is, so that a run goes on where it was. One farther off is replaced
    by the nearest on the manifold, with a warning.

    Args:
        params: parameters or parameter groups; a group may set every option below for itself.
        lr: learning rate, a number or a tensor of one element. More than `1 / (2 lambda)` is cut to that.
        momentum: factor of the buffer, in [0, 1) as a rule.
        nesterov: look ahead; needs momentum.
        weight_decay: for groups with `manifold=False` only, where the whole step is that of `torch.optim.SGD`.
        attraction: `lambda`, above 0.
        eps: the largest distance `|W W^T - I|_F` of a group from the manifold, from 0.001 to below 1.
        group_size: at most this many rows per group, or `None`.
        manifold: whether the weights of a group live near the manifold.
        stacked: whether each weight of a group is a stack `(E, n, d)` of matrices, such as the experts of a mixture.

    Raises:
        TypeError: a complex or half precision weight on the manifold, or one sharded on other than its rows.
        ValueError: an illegal option; a weight of fewer than two dimensions or with entries that are not finite;
            weight decay that would do nothing; a sharded weight of which a rank holds a part of a group.

    Examples:
        >>> _ = torch.manual_seed(0)
        >>> W = torch.nn.Parameter(torch.nn.init.orthogonal_(torch.empty(2, 6)))
        >>> optimizer = Landing([W], lr=0.2)
        >>> for _ in range(100):
        ...     optimizer.zero_grad()
        ...     (W[:, :2] ** 2).sum().backward()
        ...     optimizer.step()
        >>> optimizer.project_()
        >>> bool(W[:, :2].abs().max() < 0.1), bool((W @ W.mT - torch.eye(2)).abs().max() < 1e-6)
        (True, True)

    Source: Ablin, Peyré, Fast and accurate optimization on the orthogonal manifold without retraction, AISTATS 2022;
    Ablin, Vary, Gao, Absil, Infeasible deterministic, stochastic, and variance-reduction algorithms for optimization
    under orthogonality constraints, JMLR 25, 2024, for rectangular matrices.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        attraction: float = 1.0,
        eps: float = 0.5,
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
                "attraction": attraction,
                "eps": eps,
                "group_size": group_size,
                "manifold": manifold,
                "stacked": stacked,
            },
        )

    @torch.no_grad()
    def project_(self) -> None:
        """Put every weight of the groups on the manifold: the nearest matrix with orthonormal rows in its groups.

        Raises:
            ValueError: a weight has entries that are not finite.

        Examples:
            >>> W = torch.nn.Parameter(torch.eye(2, 3))
            >>> optimizer = Landing([W], lr=0.1)
            >>> _ = W.data.mul_(1.1)
            >>> optimizer.project_()
            >>> bool((W @ W.mT - torch.eye(2)).abs().max() < 1e-6)
            True
        """
        for group in self.param_groups:
            if group["manifold"]:
                for blocks in batches(group["params"], group["group_size"], group["stacked"]):
                    blocks.scatter(blocks.params, project(blocks.stack(blocks.params)))

    def _check_options(self, options: dict[str, Any]) -> None:
        super()._check_options(options)
        for name in ("attraction", "eps"):
            check_number(name, options[name])
        if options["attraction"] == 0:
            raise ValueError(
                "attraction must be above 0; got 0, with which no weight returns to the manifold. Leave it out."
            )
        if not _LEAST_EPS <= options["eps"] < 1:
            raise ValueError(
                f"eps must be from {_LEAST_EPS} to below 1; got {options['eps']}. Use StiefelSGD for weights that "
                "are on the manifold to rounding."
            )

    def _eps(self, group: dict[str, Any]) -> float:
        # Weights that a run of this optimizer left are where the next one goes on.
        return group["eps"]

    def _manifold_step(self, group: dict[str, Any], blocks: Blocks) -> None:
        W, G = blocks.stack(blocks.params), blocks.stack(blocks.grads)
        b = self._direction(group, blocks, W, G, None)
        step = _landing_step(W, b, learning_rate(group), group["attraction"], group["eps"])
        blocks.scatter(blocks.params, step)


# Note [The safe step]
# Let P = W W^T - I and d = |P|_F, and let the step be W - t F with F = R + a P W, R = W O, O = skew(W^T b), a = lambda.
# R W^T = W O W^T is skew, whatever b is, so R W^T + W R^T = 0. The attraction gives P W W^T + W W^T P = 2 (P + P^2).
# Hence the next distance comes from P' = (1 - 2 t a) P - 2 t a P^2 + t^2 F F^T, and for t <= 1 / (2 a)
#     |P'|_F <= (1 - 2 t a) d + 2 t a d^2 + t^2 g^2,  g = |F|_F,
# since |F F^T|_F <= |F|_F^2. That is at most eps up to the positive root of g^2 t^2 - 2 a d (1 - d) t - (eps - d) = 0,
#     t = (c + sqrt(c^2 + g^2 (eps - d))) / g^2,  c = a d (1 - d),
# which is the paper's. Rows are the transpose of its columns. For a tall weight W is the transpose, and each group of
# rows, each matrix of a stack, has a step of its own. Momentum changes nothing, because b stands where G stands.
def _landing_step(W: Tensor, b: Tensor, lr: float | Tensor, attraction: float, eps: float) -> Tensor:
    M, P, d = _gram(W)
    far = d > eps
    if bool(far.any()):  # on an accelerator this waits, and is cheaper than a retraction at each step
        W = torch.where(far, retract_polar(W, torch.zeros_like(W)), W)
        M, P, d = _gram(W)
    # W skew(W^T b) = (W W^T b - W b^T W) / 2: nothing is d x d.
    left = torch.sub(attraction * P, W @ b.mT, alpha=0.5)
    field = torch.baddbmm(left @ W, M, b, alpha=0.5)
    t = _safe_step(d, field, attraction, _INSIDE * eps).clamp(max=lr).to(W.dtype)
    return W - t * field


def _gram(W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`W W^T`, `P = W W^T - I` and `|P|_F`, one number a matrix."""
    M = W @ W.mT
    P = M.clone()
    P.diagonal(dim1=-2, dim2=-1).sub_(1)
    return M, P, torch.linalg.matrix_norm(P, keepdim=True)


def _safe_step(d: Tensor, field: Tensor, attraction: float, eps: float) -> Tensor:
    """How far a block may go along its field, at most `1 / (2 lambda)`; one number a block."""
    # In float64, where the squares of what float32 can hold are finite, and divided before they are multiplied.
    wide = working_dtype(field)
    g = torch.linalg.vector_norm(field, dim=(-2, -1), keepdim=True, dtype=wide).clamp_min(torch.finfo(wide).tiny)
    c = attraction * d.to(wide) * (1 - d.to(wide)) / g
    return ((c + (c * c + (eps - d)).clamp_min(0).sqrt()) / g).clamp(0, 1 / (2 * attraction))
