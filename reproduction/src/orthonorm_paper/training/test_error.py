"""`Errors`: top-1 and top-5 errors, counted by torchmetrics over all processes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torchmetrics.classification import MulticlassStatScores


class Errors:
    """Share of samples whose class is not among the ``k`` largest logits, in %, for each ``k``.

    Counted in whole numbers, so that neither the size of the batches nor the number of processes changes it.

    Args:
        classes: number of classes.
        tops: the values of ``k``.

    Examples:
        >>> errors = Errors(3, (1, 2))
        >>> errors.update(torch.tensor([[3.0, 2.0, 1.0], [3.0, 1.0, 2.0]]), torch.tensor([0, 2]))
        >>> errors.percent()
        [50.0, 0.0]
    """

    def __init__(self, classes: int, tops: Sequence[int] = (1,)) -> None:
        self._scores = [
            MulticlassStatScores(classes, average="micro", top_k=k, validate_args=False, zero_division=0) for k in tops
        ]

    def to(self, device: torch.device) -> Errors:
        """Move the counts to a device."""
        self._scores = [scores.to(device) for scores in self._scores]
        return self

    def update(self, logits: Float[Tensor, "batch classes"], labels: Int[Tensor, " batch"]) -> None:
        """Count a batch of this process, which may be empty."""
        # torchmetrics cannot reshape nothing.
        for scores in self._scores if len(labels) else ():
            scores.update(logits, labels)

    def percent(self) -> list[float]:
        """The errors of all processes together."""
        found = []
        for scores in self._scores:
            right, *_, seen = scores.compute().tolist()
            found.append(100 * (seen - right) / seen)
        return found

    def reset(self) -> None:
        """Begin from scratch."""
        for scores in self._scores:
            scores.reset()

    def state(self) -> list[dict[str, Tensor]]:
        """The counts of all processes together, for a checkpoint."""
        states = []
        for scores in self._scores:
            with scores.sync_context():
                states.append({name: value.cpu().clone() for name, value in _tensors(scores).items()})
        return states

    def load(self, states: list[dict[str, Tensor]]) -> None:
        """Go on from the counts of a checkpoint; one process does, and the others from nothing."""
        for scores, state in zip(self._scores, states, strict=True):
            for name, value in state.items():
                setattr(scores, name, value.to(scores.device))


def _tensors(scores: MulticlassStatScores) -> dict[str, Tensor]:
    return {name: value for name, value in scores.metric_state.items() if isinstance(value, Tensor)}
