"""Matrices whose singular values and row means are chosen, good and bad."""

import math
from collections.abc import Callable

import torch
from torch import Tensor


def log_spaced(n: int, condition: float) -> Tensor:
    return torch.logspace(0, -math.log10(condition), n, dtype=torch.float64)


def equal(n: int, condition: float) -> Tensor:
    return torch.full((n,), 1 / condition, dtype=torch.float64)


def pairs(n: int, condition: float) -> Tensor:
    return log_spaced((n + 1) // 2, condition).repeat_interleave(2)[:n]


def one_large(n: int, condition: float) -> Tensor:
    return torch.where(torch.arange(n) == 0, 1.0, 1 / condition).double()


def one_small(n: int, condition: float) -> Tensor:
    return torch.where(torch.arange(n) == n - 1, 1 / condition, 1.0).double()


def two_level(n: int, condition: float) -> Tensor:
    return torch.where(torch.arange(n) < n // 2, 1.0, 1 / condition).double()


SPECTRA: dict[str, Callable[[int, float], Tensor]] = {
    "log-spaced": log_spaced,
    "equal": equal,
    "pairs": pairs,
    "one large": one_large,
    "one small": one_small,
    "two-level": two_level,
}


def orthonormal_rows(n: int, d: int, generator: torch.Generator, *, center: bool = False) -> Tensor:
    """n random orthonormal rows of length d, each of mean zero where `center`."""
    A = torch.randn(d, n, generator=generator, dtype=torch.float64)
    if center:
        A = A - A.mean(0)
    Q, R = torch.linalg.qr(A)
    return (Q * R.diagonal().sign()).T


def matrix(values: Tensor, d: int, *, center: bool = True, means: float = 0.0, seed: int = 0) -> Tensor:
    """A float64 matrix (n, d) which, its row means taken off where `center`, has the singular values `values`.

    Row means are `means` times the deviation of the row's entries. Without `center` they are part of the matrix, and
    only zero makes sense.
    """
    generator = torch.Generator().manual_seed(seed)
    n = len(values)
    left = orthonormal_rows(n, n, generator)
    V = left * values @ orthonormal_rows(n, d, generator, center=center)
    return V + means * V.norm(dim=1, keepdim=True) / math.sqrt(d)


def hadamard(n: int) -> Tensor:
    """The Hadamard matrix of a power of two, entries 1 and -1, first row constant."""
    H = torch.ones(1, 1, dtype=torch.float64)
    while len(H) < n:
        H = torch.cat([torch.cat([H, H], 1), torch.cat([H, -H], 1)])
    return H


def starting_points(n: int, d: int) -> dict[str, Tensor]:
    """Matrices (n, d) with 2n < d = a power of two, as people start from, and every chosen spectrum."""
    generator = torch.Generator().manual_seed(7)
    named = {
        "normal": torch.randn(n, d, generator=generator, dtype=torch.float64),
        "orthogonal": torch.nn.init.orthogonal_(torch.empty(n, d, dtype=torch.float64), generator=generator),
        "identity": torch.eye(n, d, dtype=torch.float64),
        "hadamard": hadamard(d)[1 : n + 1],
    }
    return named | {name: matrix(values(n, 10.0), d, means=0.5) for name, values in SPECTRA.items()}
