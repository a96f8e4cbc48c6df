"""The words that options take, and which of them go together: what functions, layers and configurations share."""

from typing import Literal

__all__ = ["Grouping", "MethodName", "MetricName", "Precision", "RetractionName", "Tall", "check_tall"]

Grouping = Literal["balanced", "tail"]
"""How rows are split: as evenly as possible, or in full groups and a smaller last one."""

Tall = Literal["groups", "columns"]
"""What a matrix of more rows than columns becomes: groups of orthonormal rows, or orthonormal columns."""

MethodName = Literal["auto", "eigh", "newton"]
"""How the inverse square root is computed."""

Precision = Literal["auto", "float64"]
"""Whether a float32 weight is transformed in float32, in as many passes as accuracy needs, or always in float64."""

MetricName = Literal["euclidean", "canonical"]
"""Inner product of tangent vectors of the Stiefel manifold, which turns a gradient into a direction."""

RetractionName = Literal["qr", "polar", "cayley"]
"""How a step along a tangent vector comes back to the manifold."""


def check_tall(tall: str, *, group_size: int | None, center: bool) -> None:
    """Raise a ValueError for a `tall` that is not known, or that the other options contradict."""
    if tall not in ("groups", "columns"):
        raise ValueError(
            f"tall must be 'groups' (orthonormal rows in groups) or 'columns' (orthonormal columns); got {tall!r}."
        )
    if tall == "groups":
        return
    if group_size is not None or center:
        raise ValueError(
            "group_size must be None and center False with tall='columns', which takes a tall weight as one matrix and "
            f"whose columns centring would disturb; got group_size={group_size} and center={center}. Pass "
            "group_size=None and center=False, which are not the defaults of OLMConfig, or tall='groups'."
        )
