"""How the recurrent weight of a network is kept orthogonal, by this library and by torch's own parametrization."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import orthonorm as on
from orthonorm_paper.exceptions import UserError

_GATES: dict[type[nn.RNNBase], int] = {nn.RNN: 1, nn.LSTM: 4, nn.GRU: 3}


def recurrent_weights(network: nn.Module) -> list[tuple[nn.RNNBase, str, int]]:
    """Every recurrent weight: the layer, the tensor's name, and how many gates are stacked in it.

    Raises:
        UserError: a network without a recurrent layer.

    Examples:
        >>> [(name, gates) for _, name, gates in recurrent_weights(nn.LSTM(3, 4, num_layers=2))]
        [('weight_hh_l0', 4), ('weight_hh_l1', 4)]
    """
    found = [
        (module, f"weight_hh_l{layer}", gates)
        for module in network.modules()
        for kind, gates in _GATES.items()
        if isinstance(module, kind)
        for layer in range(module.num_layers)
    ]
    if not found:
        raise UserError(
            f"a method for recurrent weights needs a network with an RNN, LSTM or GRU; got {type(network).__name__}."
        )
    return found


def recurrent_unchanged(network: nn.Module) -> nn.Module:
    """The network as it is, which must have a recurrent weight."""
    recurrent_weights(network)
    return network


def orthogonalize_recurrent_(
    network: nn.Module,
    *,
    scale: Literal["row_norms"] | None = None,
    initial: Literal["weight", "orthonormal"] = "weight",
) -> nn.Module:
    """Make each gate's recurrent matrix orthogonal by this library: one group a gate, not centred; in place."""
    recurrent_weights(network)
    config = on.OrthogonalConfig(center=False, scale=scale, initial=initial)
    return on.orthogonalize_(network, config, lambda module, _: isinstance(module, nn.RNNBase))


def torch_orthogonal_(network: nn.Module) -> nn.Module:
    """Make each gate's recurrent matrix orthogonal by ``torch.nn.utils.parametrizations.orthogonal``; in place.

    torch's function on the whole weight would make the columns of the stacked gates orthonormal, which is another
    constraint: here its transformation, a matrix exponential around the initial value, is applied to each gate.
    """
    for module, name, gates in recurrent_weights(network):
        stack = _EachGate(getattr(module, name), gates)
        parametrize.register_parametrization(module, name, stack, unsafe=True)
    return network


class _EachGate(nn.Module):
    """torch's orthogonal map on a stack of gates, each by itself."""

    def __init__(self, weight: Tensor, gates: int) -> None:
        super().__init__()
        holder = nn.Module()
        holder.gates = nn.Parameter(weight.detach().unflatten(0, (gates, -1)).clone())
        parametrizations.orthogonal(holder, "gates")
        self.each: Any = holder.parametrizations["gates"][0]  # type: ignore[index]
        self.count = gates

    def forward(self, A: Tensor) -> Tensor:
        """Orthogonal gates, stacked as the layer has them."""
        return self.each(A.unflatten(0, (self.count, -1))).flatten(0, 1)

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Take ``weight`` as the matrix around which torch's map is laid."""
        return self.each.right_inverse(weight.unflatten(0, (self.count, -1))).flatten(0, 1)


@torch.no_grad()
def recurrent_error(network: nn.Module) -> float:
    """Largest ``|W W^T - I|`` over the gates, ``W`` the weight that the layer computes with."""
    errors = []
    for module, name, gates in recurrent_weights(network):
        rows = getattr(module, name).double().unflatten(0, (gates, -1))
        eye = torch.eye(rows.shape[-2], dtype=rows.dtype, device=rows.device)
        errors.append(float((rows @ rows.mT - eye).abs().max()))
    return max(errors)
