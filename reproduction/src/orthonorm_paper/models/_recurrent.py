"""Recurrent networks of the sequence experiments: one RNN or LSTM layer and a linear read-out."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from orthonorm_paper.exceptions import UserError

GATES: dict[type[nn.RNNBase], int] = {nn.RNN: 1, nn.LSTM: 4}


class Recurrent(nn.Module):
    """A recurrent layer over the rows of its input, and a read-out of the last state or of each.

    Args:
        core: the recurrent layer, batch first.
        classes: outputs of the read-out.
        each_step: read every state, not only the last one.
    """

    def __init__(self, core: nn.RNN | nn.LSTM, classes: int, *, each_step: bool) -> None:
        super().__init__()
        self.core: nn.RNN | nn.LSTM = core
        self.each_step: bool = each_step
        self.readout: nn.Linear = nn.Linear(core.hidden_size, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of ``(batch, time, features)``, or of images whose rows are the steps.

        Returns:
            ``(batch, time, classes)``, or ``(batch, classes)`` for the last step.
        """
        # A recurrent layer of torch looks at its weights more than once a forward: a parametrized one is computed once.
        with parametrize.cached():
            states, _ = self.core(x.reshape(len(x), *x.shape[-2:]))
        return self.readout(states if self.each_step else states[:, -1])


def rnn(
    *,
    shape: tuple[int, ...],
    classes: int,
    start: str,
    seed: int,
    width: int = 64,
    each_step: bool = False,
) -> Recurrent:
    """``h_t = tanh(U x_t + W h_{t-1} + b)`` and a linear read-out.

    Args:
        shape: ``(time, features)`` of one sequence, or ``(1, time, features)`` of a grey image.
        classes: outputs of the read-out.
        start: "paper" (torch's: all uniform in +-1/sqrt(width)), or "orthogonal" (``W`` orthogonal, the rest the same).
        seed: of the initialization.
        width: size of the state.
        each_step: read every state, not only the last one.

    Raises:
        UserError: another shape or initialization, or no state.

    Examples:
        >>> network = rnn(shape=(30, 10), classes=9, start="paper", seed=0, each_step=True)
        >>> network(torch.zeros(2, 30, 10)).shape
        torch.Size([2, 30, 9])
    """
    core = nn.RNN(_features(shape, width), width, batch_first=True)
    return _started(Recurrent(core, classes, each_step=each_step), start, seed)


def lstm(
    *, shape: tuple[int, ...], classes: int, start: str, seed: int, width: int = 64, each_step: bool = False
) -> Recurrent:
    """An LSTM layer and a linear read-out; arguments as in ``rnn``, "orthogonal" makes each gate's matrix orthogonal.

    Examples:
        >>> network = lstm(shape=(1, 32, 32), classes=10, start="orthogonal", seed=0)
        >>> network(torch.zeros(2, 1, 32, 32)).shape
        torch.Size([2, 10])
    """
    core = nn.LSTM(_features(shape, width), width, batch_first=True)
    return _started(Recurrent(core, classes, each_step=each_step), start, seed)


def _features(shape: tuple[int, ...], width: int) -> int:
    if len(shape) not in (2, 3) or (len(shape) == 3 and shape[0] != 1):
        raise UserError(
            f"a recurrent network takes (time, features) or one channel of (1, time, features); got the shape {shape}."
        )
    if width < 1:
        raise UserError(f"width, the size of the state, must be at least 1; got {width}.")
    return shape[-1]


@torch.no_grad()
def _started(network: Recurrent, start: str, seed: int) -> Recurrent:
    """Draw every weight again: a function of the arguments alone, and but for W the same for both initializations."""
    if start not in ("paper", "orthogonal"):
        raise UserError(f"start of a recurrent network must be paper or orthogonal; got {start!r}.")
    random = torch.Generator().manual_seed(seed)
    bound = 1 / math.sqrt(network.core.hidden_size)
    for parameter in network.parameters():
        parameter.uniform_(-bound, bound, generator=random)
    if start == "orthogonal":
        weight = network.core.get_parameter("weight_hh_l0")
        for gate in weight.chunk(GATES[type(network.core)]):
            nn.init.orthogonal_(gate, generator=random)
    return network
