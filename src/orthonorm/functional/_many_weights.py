"""The transformation of many weights at once: few calls, whatever the number of layers."""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ._groups import runs_of_equal_size
from ._option_types import Precision
from ._transformation import choose_path, map_batches

__all__ = ["Rows", "orthonormalize_together"]

# Batches of equal shape are joined up to this many entries: joining costs two copies, and saves twenty calls.
_JOINED_ENTRIES = 2**20


class Rows(NamedTuple):
    """Matrices whose rows are to be orthonormal, and how: what `orthonormalize_groups` takes."""

    V: Float[Tensor, "m n d"]
    sizes: tuple[int, ...]
    center: bool
    method: str
    precision: Precision = "auto"


def orthonormalize_together(weights: Sequence[Rows]) -> list[Tensor]:
    r"""Return `orthonormalize_groups` of each weight, all inverse square roots of one size computed in one call.

    $$W_k = \Sigma_k^{-1/2} (V_k - \bar V_k) \quad \text{for every group } k \text{ of every weight}$$

    The Gram matrix of a group of `n` rows is n x n whatever the layer, so the inverse square roots of a whole network
    are one batch. Groups of equal shape share the other matrix products too. The results and the gradients are those of
    weight by weight.

    Args:
        weights: the matrices `(m, n, d)`, the sizes of their groups, and how they are transformed.

    Examples:
        >>> import torch
        >>> a, b = torch.randn(1, 8, 20), torch.randn(1, 4, 50)
        >>> Wa, Wb = orthonormalize_together([Rows(a, (4, 4), True, "auto"), Rows(b, (4,), True, "auto")])
        >>> Wa.shape, torch.dist(Wb[0] @ Wb[0].T, torch.eye(4)) < 1e-5
        (torch.Size([1, 8, 20]), tensor(True))

    Source: equation (3) of the paper, whose groups are independent of each other; Mathematics (2).
    """
    pieces: dict[tuple, list[tuple[int, int]]] = defaultdict(list)
    batches: list[list[Tensor]] = []
    for k, (V, sizes, center, method, precision) in enumerate(weights):
        if V.numel() == 0:
            batches.append([V.clone()])
            continue
        runs, path = runs_of_equal_size(sizes), choose_path(V, method, precision)
        parts = [V] if len(runs) == 1 else V.split([size * count for size, count in runs], dim=-2)
        batches.append([part.reshape(-1, size, V.shape[-1]) for part, (size, _) in zip(parts, runs, strict=True)])
        for i, (size, _) in enumerate(runs):
            pieces[size, center, path, V.dtype, V.device].append((k, i))
    for (_, center, path, *_), places in pieces.items():
        results = _map_joined([batches[k][i] for k, i in places], center, path)
        for (k, i), W in zip(places, results, strict=True):
            batches[k][i] = W
    return [_assemble(parts, weight.V) for parts, weight in zip(batches, weights, strict=True)]


def _map_joined(Vs: Sequence[Tensor], center: bool, path: str) -> list[Tensor]:
    """Return W of each batch of matrices of one number of rows, batches of equal shape joined while they are small."""
    joined: list[list[int]] = []
    last: dict[int, list[int]] = {}
    for k, V in enumerate(Vs):
        d = V.shape[-1]
        if d in last and sum(Vs[i].numel() for i in last[d]) + V.numel() <= _JOINED_ENTRIES:
            last[d].append(k)
        else:
            last[d] = [k]
            joined.append(last[d])
    inputs = [Vs[ks[0]] if len(ks) == 1 else torch.cat([Vs[k] for k in ks]) for ks in joined]
    results = list(Vs)
    for ks, W in zip(joined, map_batches(inputs, center=center, path=path), strict=True):
        for k, part in zip(ks, (W,) if len(ks) == 1 else W.split([len(Vs[k]) for k in ks]), strict=True):
            results[k] = part
    return results


def _assemble(parts: Sequence[Tensor], V: Tensor) -> Tensor:
    if V.numel() == 0:
        return parts[0]
    m, _, d = V.shape
    Ws = [part.reshape(m, -1, d) for part in parts]
    return Ws[0] if len(Ws) == 1 else torch.cat(Ws, dim=-2)
