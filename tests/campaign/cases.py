"""Weights as hostile as they come: shape, grouping, type, memory, spectrum, size and damage, all drawn."""

import math
from dataclasses import dataclass
from typing import Protocol

import hypothesis
import torch
from hypothesis import strategies as st
from torch import Tensor

from orthonorm.functional._groups import GROUPINGS, group_sizes
from orthonorm.functional._methods import METHODS
from spectra import SPECTRA, orthonormal_rows

NIGHTLY = hypothesis.settings.get_current_profile_name() == "nightly"
SIDE = 2000 if NIGHTLY else 256
# Entries of one weight, so that thousands of cases fit in a night; `LARGEST` are met whole.
ENTRIES = 2**15 if NIGHTLY else 2**12
LARGEST = [(2000, 2000), (2000, 64), (64, 2000)] if NIGHTLY else [(256, 256), (256, 16), (16, 256)]
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def transposed(X: Tensor) -> Tensor:
    return X.mT.contiguous().mT


def strided(X: Tensor) -> Tensor:
    return torch.stack([X, torch.full_like(X, math.nan)], -1)[..., 0]


def with_an_offset(X: Tensor) -> Tensor:
    memory = torch.full((X.numel() + 3,), math.nan, dtype=X.dtype)
    memory[3:] = X.flatten()
    return memory[3:].view(X.shape)


def expanded(X: Tensor) -> Tensor:
    """The first matrix in the place of every one, without memory of their own."""
    return X[:1].expand(X.shape) if X.ndim > 2 and len(X) else X


LAYOUTS = {
    "contiguous": lambda X: X,
    "transposed": transposed,
    "strided": strided,
    "with an offset": with_an_offset,
    "expanded": expanded,
}


def zero_row(V: Tensor) -> None:
    V[..., -1, :] = 0


def constant_row(V: Tensor) -> None:
    V[..., 0, :] = V[..., 0, :1]


def equal_rows(V: Tensor) -> None:
    V[..., -1, :] = V[..., 0, :]


def all_zero(V: Tensor) -> None:
    V.zero_()


DAMAGE = {
    "none": lambda _: None,
    "zero row": zero_row,
    "constant row": constant_row,
    "equal rows": equal_rows,
    "zero": all_zero,
}


@dataclass(frozen=True)
class Case:
    """One batch of weights, and how it is mapped."""

    batch: tuple[int, ...]
    n: int
    d: int
    group_size: int | None
    grouping: str
    center: bool
    dtype: torch.dtype
    spectrum: str
    condition: float
    size: float
    """Where in the range of the type: 0 its smallest number that is not zero, 1 its largest."""
    means: float
    layout: str
    damage: str
    seed: int

    @property
    def options(self) -> dict:
        return {"group_size": self.group_size, "grouping": self.grouping, "center": self.center}

    @property
    def sizes(self) -> tuple[int, ...]:
        return group_sizes(self.n, self.d, **self.options)

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def weight(self) -> Tensor:
        """V: each group of the spectrum and condition (before it is rounded), in the memory layout."""
        generator = self.generator()
        V = torch.stack([self._matrix(generator) for _ in range(math.prod(self.batch))])
        if self.center:
            V = V + self.means * V.square().mean(-1, keepdim=True).sqrt()
        info = torch.finfo(self.dtype)
        V = V / V.abs().amax().clamp_min(1e-300)
        if self.size == 1:
            V = V * info.max
        else:
            low = math.log2(info.tiny) + math.log2(info.eps)
            exponent = low + self.size * (math.log2(info.max) - low)
            half = math.floor(exponent / 2)  # in two factors: 2^-1074 is a number, its inverse none
            V = V * 2.0**half * 2.0 ** (exponent - half)
        V = V.to(self.dtype).view(*self.batch, self.n, self.d)
        DAMAGE[self.damage](V)
        return LAYOUTS[self.layout](V)

    def _matrix(self, generator: torch.Generator) -> Tensor:
        rows = []
        for size in self.sizes:
            values = SPECTRA[self.spectrum](size, self.condition)
            right = orthonormal_rows(size, self.d, generator, center=self.center)
            left = orthonormal_rows(size, size, generator)
            rows.append(left * values @ right)
        return torch.cat(rows)

    def gradient(self, W: Tensor, layout: str = "contiguous") -> Tensor:
        """A gradient of W's shape and type, entries of order one."""
        generator = self.generator()
        return LAYOUTS[layout](torch.randn(W.shape, generator=generator, dtype=torch.float64).to(W.dtype))


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    conditions: tuple[float, float] = (0.0, 12.0),
    dtypes: tuple[torch.dtype, ...] = DTYPES,
    sizes: tuple[float, float] = (0.0, 1.0),
    damage: bool = True,
    entries: int = ENTRIES,
) -> Case:
    center = draw(st.booleans())
    short = draw(st.integers(1 + center, min(SIDE, math.isqrt(entries))))
    long = draw(st.integers(short, min(SIDE, entries // short)))
    n, d = draw(st.sampled_from([(short, long), (long, short)]))
    limit = d - center
    group_size = draw(st.none() | st.integers(1, limit))
    count = draw(st.integers(0, 2)) if n * d <= entries // 3 else 0
    return Case(
        batch=tuple(draw(st.lists(st.integers(1, 2), min_size=count, max_size=count))),
        n=n,
        d=d,
        group_size=group_size,
        grouping=draw(st.sampled_from(GROUPINGS)),
        center=center,
        dtype=draw(st.sampled_from(dtypes)),
        spectrum=draw(st.sampled_from(list(SPECTRA))),
        condition=10 ** draw(st.floats(*conditions)),
        size=draw(st.sampled_from([sizes[0], sizes[1]]) | st.floats(*sizes)),
        means=draw(st.sampled_from([0.0, 0.0, 1.0, -10.0])) if center else 0.0,
        layout=draw(st.sampled_from(list(LAYOUTS))),
        damage=draw(st.sampled_from(["none", *DAMAGE])) if damage else "none",
        seed=draw(st.integers(0, 2**32 - 1)),
    )


# Where 1 / |V| times a condition number of 1e3 is within the range of every type, float16 too.
MODERATE = (0.6, 0.65)
METHOD_NAMES = st.sampled_from(list(METHODS))


class Grouped(Protocol):
    """Whatever says how rows are grouped and centred: a case, or a layer's own map."""

    @property
    def sizes(self) -> tuple[int, ...]: ...

    @property
    def center(self) -> bool: ...


def parts(X: Tensor, case: Grouped) -> list[Tensor]:
    return list(X.split(list(case.sizes), dim=-2))


def singular_values(V: Tensor, case: Grouped) -> list[Tensor]:
    """The singular values of each group as it stands in its type, centred, in units of the largest entry of the group.

    By LAPACK from V itself in float64, never from a Gram matrix.
    """
    values = []
    for part in parts(V.detach(), case):
        X = part.double()
        exponent = torch.frexp(X.abs().amax((-2, -1), keepdim=True)).exponent
        half = exponent // 2
        X = torch.ldexp(torch.ldexp(X, -half), half - exponent)
        values.append(torch.linalg.svdvals(X - X.mean(-1, keepdim=True) if case.center else X))
    return values


def conditions(V: Tensor, case: Grouped) -> list[Tensor]:
    """The condition of each group of each matrix; infinite where rank is lost."""
    return [torch.where(s[..., -1] > 0, s[..., 0] / s[..., -1], math.inf) for s in singular_values(V, case)]


def tolerance(dtype: torch.dtype, n: int, precision: str = "float64") -> float:
    """The stated accuracy of |W W^T - I|; of half precision, what rounding each entry of W once leaves."""
    if dtype == torch.float64:
        return 1e-13
    if dtype == torch.float32:
        return 1e-6 if precision == "float64" else 3e-5
    return 2 * torch.finfo(dtype).eps * math.sqrt(n)


def distance(method: str, condition: Tensor) -> Tensor:
    """The stated distance from the exact W, over the square root of the rows, where V is computed in float32."""
    return 3e-6 * condition.clamp_min(3.0) if method == "newton" else torch.full_like(condition, 1e-5)


def same(dtype: torch.dtype) -> float:
    """What may differ where sums run in another order: 16 units of the type, and of float64 the condition squared."""
    return 1e-9 if dtype == torch.float64 else 16 * torch.finfo(dtype).eps
