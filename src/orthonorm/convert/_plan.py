"""What a conversion does with each weight of a model, as numbers, and as a table when it is printed."""

from dataclasses import dataclass
from math import floor, prod
from typing import Literal

from orthonorm._text_table import text_table

__all__ = ["ConversionPlan", "Decision", "PlannedWeight"]

Decision = Literal["converted", "left", "refused", "orthogonal"]


@dataclass(frozen=True)
class PlannedWeight:
    """What a conversion does with one weight, and why.

    Attributes:
        name: key in the plain model's `state_dict`.
        layer: class of the layer that holds it.
        shape: shape of the tensor.
        decision: `"converted"`, `"left"` as it is, `"orthogonal"` already, or `"refused"`: then
            `orthogonalize_` raises the error that `why` holds.
        groups: the groups of rows in words; empty if it stays plain.
        operations: operations of its transformation in each training step, forward and backward, whatever the
            batch size.
        why: the reason for the decision.
        tied_to: the first weight of the model that shares its tensor; empty if there is none before it.
    """

    name: str
    layer: str
    shape: tuple[int, ...]
    decision: Decision
    groups: str
    operations: int
    why: str
    tied_to: str = ""

    @property
    def numel(self) -> int:
        """Number of its entries."""
        return prod(self.shape)


@dataclass(frozen=True)
class ConversionPlan:
    """What `orthogonalize_` does with each weight of a model; prints as a table.

    Attributes:
        weights: the tensors of two or more dimensions, in the order of the model. Tied ones stand once for each
            layer.
    """

    weights: tuple[PlannedWeight, ...]

    @property
    def converted(self) -> tuple[PlannedWeight, ...]:
        """The weights that become orthogonal."""
        return self._decided("converted")

    @property
    def left(self) -> tuple[PlannedWeight, ...]:
        """The weights that stay as they are."""
        return self._decided("left")

    @property
    def orthogonal(self) -> tuple[PlannedWeight, ...]:
        """The weights that are orthogonal already, and stay so."""
        return self._decided("orthogonal")

    @property
    def refused(self) -> tuple[PlannedWeight, ...]:
        """The weights that were chosen and cannot be converted."""
        return self._decided("refused")

    @property
    def operations(self) -> int:
        """Operations of the transformation in each training step, forward and backward, whatever the batch size."""
        return sum(weight.operations for weight in self.weights)

    def entries(self, decision: Decision | None = None) -> int:
        """Return the number of entries of the weights with one decision, or of all: a tied tensor counts once."""
        chosen = self.weights if decision is None else self._decided(decision)
        return sum(weight.numel for weight in chosen if not weight.tied_to)

    def _decided(self, decision: Decision) -> tuple[PlannedWeight, ...]:
        return tuple(weight for weight in self.weights if weight.decision == decision)

    def __str__(self) -> str:
        """Return the table, one row per weight, and the totals below it."""
        heading = ("weight", "layer", "shape", "decision", "groups", "Mflop a step", "why")
        rows = [
            (w.name, w.layer, " x ".join(map(str, w.shape)), w.decision, w.groups, _million(w.operations), w.why)
            for w in self.weights
        ]
        entries, total = self.entries("converted"), self.entries()
        below = [
            f"{len(self.refused)} of {len(self.weights)} weights are refused: orthogonalize_ raises and converts none."
            if self.refused
            else f"{len(self.converted)} of {len(self.weights)} weights are converted, "
            f"{entries:,} of {total:,} entries ({floor(1000 * entries / max(total, 1)) / 10}%).",
            *([f"{len(self.orthogonal)} are orthogonal already."] if self.orthogonal else []),
            f"The transformation takes {_million(self.operations) or '0'} Mflop in each training step, whatever the "
            "batch size.",
        ]
        if any(weight.layer.endswith("Cell") for weight in (*self.converted, *self.orthogonal)):
            below.append("A recurrent cell computes its weight at every call: unroll it inside orthonorm.cached.")
        return "\n".join([*text_table(heading, rows, right=[5]), "", *below])


def _million(operations: int) -> str:
    return f"{operations / 1e6:,.3g}" if 0 < operations < 1e8 else f"{operations / 1e6:,.0f}" if operations else ""
