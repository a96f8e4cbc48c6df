"""The Riemannian methods as the authors released them (errata 10), beside which ours are done right.

Their modules keep the weight out of the parameters that are set to zero and whose learning rate is halved. So a weight
moves along the sum of the gradients of all steps so far, at the learning rate of the first epoch. It starts where it
was drawn, off the manifold until the first retraction, but for CayT's, which starts orthogonal with a bias of zero.
Biases and the classifier are ordinary parameters. Their CayT network has the Cayley transform in its first layer only,
and EI+QR in the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

import orthonorm as on
from orthonorm_paper.exceptions import UserError

Rule = Literal["EI+QR", "CI+QR", "CayT", "QR"]


def _euclidean(W: Tensor, G: Tensor) -> Tensor:
    return G - (G @ W.mT @ W + W @ G.mT @ W) / 2


def _canonical(W: Tensor, G: Tensor) -> Tensor:
    return G - W @ G.mT @ W


_STEPS: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "EI+QR": lambda W, G, lr: on.functional.retract_qr(W, -_euclidean(W, G), lr),
    "CI+QR": lambda W, G, lr: on.functional.retract_qr(W, -_canonical(W, G), lr),
    "CayT": lambda W, G, lr: on.functional.retract_cayley(W, -_canonical(W, G), lr),
    "QR": lambda W, G, lr: on.functional.retract_qr(W, -G, lr),
}


class ReleasedSGD(torch.optim.Optimizer):
    """SGD in which the weights of some layers move as the authors' modules move them.

    Args:
        ordinary: parameters of a plain step at the learning rate of their group.
        kept: weights (rows orthonormal) by the rule that moves them; see the head of this file.
        lr: learning rate; that of the kept weights stays this one, whatever is set later.

    Raises:
        UserError: a kept weight with more rows than columns.

    Examples:
        >>> W, b = torch.eye(2, 3), torch.zeros(2)
        >>> optimizer = ReleasedSGD([b], {"QR": [W]}, lr=0.1)
        >>> [group["rule"] for group in optimizer.param_groups]
        [None, 'QR']
    """

    def __init__(self, ordinary: list[Tensor], kept: dict[Rule, list[Tensor]], lr: float) -> None:
        for weight in (weight for weights in kept.values() for weight in weights):
            if weight.shape[0] > weight[0].numel():
                raise UserError(f"a Riemannian method keeps all rows orthonormal; got a weight {tuple(weight.shape)}.")
        groups: list[dict[str, Any]] = [{"params": ordinary, "rule": None}]
        groups += [{"params": weights, "rule": rule, "first_lr": lr} for rule, weights in kept.items() if weights]
        super().__init__(groups, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """One step of every parameter that has a gradient; returns what the closure returns, the loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if group["rule"] is None:
                    parameter.sub_(group["lr"] * parameter.grad)
                    continue
                total = self.state[parameter].setdefault("sum", torch.zeros_like(parameter))
                total.add_(parameter.grad)
                W, G = parameter.flatten(1), total.flatten(1)
                parameter.copy_(_STEPS[group["rule"]](W, G, group["first_lr"]).reshape(parameter.shape))
        return loss


@torch.no_grad()
def start_first_orthonormal(layers: list[nn.Linear | nn.Conv2d]) -> None:
    """Start the first layer at the orthonormal matrix nearest to what was drawn, with a bias of zero; CayT's module."""
    first = layers[0]
    weight = first.weight.flatten(1).double()
    first.weight.copy_(on.functional.orthonormalize(weight).reshape(first.weight.shape))
    if first.bias is not None:
        first.bias.zero_()


def released_sgd(model: nn.Module, layers: list[nn.Linear | nn.Conv2d], rule: Rule, lr: float) -> ReleasedSGD:
    """The optimizer of a network: ``rule`` for its hidden layers, of CayT for the first and EI+QR for the others."""
    weights: list[Tensor] = [layer.weight for layer in layers]
    kept: dict[Rule, list[Tensor]] = {rule: weights}
    if rule == "CayT":
        kept = {"CayT": weights[:1], "EI+QR": weights[1:]}
    taken = {id(weight) for weight in weights}
    return ReleasedSGD([p for p in model.parameters() if id(p) not in taken], kept, lr)
