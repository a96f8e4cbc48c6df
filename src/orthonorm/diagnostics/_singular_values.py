"""The extreme singular values of a matrix: its condition number, and its largest one where the matrix is large."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["condition_number", "largest_singular_value"]

# From this smaller side on, the eigenvalues of the Gram matrix (seconds at 2,048) cost more than the products of the
# Lanczos iteration.
_LARGE = 1024
_STEPS = 64


def condition_number(matrix: Float[Tensor, "n d"]) -> float:
    """Return the ratio of the extreme singular values; NaN for a matrix that is not finite.

    Examples:
        >>> condition_number(torch.diag(torch.tensor([4.0, 2.0])))
        2.0
    """
    if not bool(torch.isfinite(matrix).all()):
        return math.nan
    values = torch.linalg.svdvals(matrix)
    return float(values[0] / values[-1]) if values[-1] > 0 else math.inf


def largest_singular_value(matrix: Float[Tensor, "n d"]) -> float:
    """Return the largest singular value of a float64 matrix: to rounding, for large ones from below to about 1e-3.

    Examples:
        >>> largest_singular_value(torch.tensor([[3.0, 0.0], [4.0, 0.0]], dtype=torch.float64))
        5.0
    """
    if matrix.numel() == 0:
        return 0.0
    if not bool(torch.isfinite(matrix).all()):
        return math.nan
    size = float(matrix.abs().amax())
    if size == 0:
        return 0.0
    X = matrix / size  # the squares of the largest and of the smallest numbers are no numbers
    X = X if X.shape[0] <= X.shape[1] else X.T
    if X.shape[0] > _LARGE:
        return _lanczos(X) * size
    return math.sqrt(float(torch.linalg.eigvalsh(X @ X.T)[-1])) * size


def _lanczos(X: Float[Tensor, "n d"]) -> float:
    """Return the largest singular value of X within the Krylov space of a fixed pseudo-random vector."""
    generator = torch.Generator().manual_seed(0)  # its own, so that looking draws no random number of the user's
    q = torch.randn(len(X), dtype=torch.float64, generator=generator, device=generator.device).to(X.device)
    basis, images = (q / q.norm()).unsqueeze(0), []
    for _ in range(_STEPS):
        images.append(basis[-1] @ X)
        q = X @ images[-1]
        q = q - (basis @ q) @ basis
        q = q - (basis @ q) @ basis  # again, since the first subtraction leaves rounding errors along the basis
        if q.norm() <= 1e-10 * images[-1].norm():
            break  # the space is invariant: an isometry's after one step
        basis = torch.cat([basis, (q / q.norm()).unsqueeze(0)])
    return float(torch.linalg.svdvals(torch.stack(images))[0])
