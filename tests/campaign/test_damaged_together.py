"""Weights mapped together under attack: one that is NaN, infinite or short of rank is no matter of the others."""

import math
from dataclasses import dataclass, replace

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from campaign.cases import DAMAGE, METHOD_NAMES, MODERATE, Case, cases, conditions, parts, same, tolerance
from campaign.checks import NEWTON_REACH, WELL, log2_norm, log2_roots, lost, nothing_else_changes, run
from campaign.figures import Figures
from orthonorm.functional._many_weights import Rows, orthonormalize_together
from orthonorm.functional._orthogonality import orthogonality_errors


@dataclass(frozen=True)
class Damaged:
    """One weight of a batch, and which entry of it, or of its gradient, is not finite."""

    case: Case
    bad: float | None
    in_gradient: bool
    place: int

    def matrices(self) -> Tensor:
        """V as `(m, n, d)`, with the entry that is not finite."""
        V = self.case.weight().reshape(-1, self.case.n, self.case.d).detach()
        return V if self.in_gradient else self._struck(V)

    def gradient(self, V: Tensor, method: str) -> Tensor:
        """dL/dW, each group as small as it takes for dL/dV to be a number of the type, struck after that."""
        G = self.case.gradient(V)
        sound = torch.where(V.isfinite(), V, 0)
        roots = log2_roots(sound, self.case, reach(method))
        for part, root in zip(parts(G, self.case), roots, strict=True):
            room = math.log2(torch.finfo(V.dtype).max) - 3 - root.max().item() - log2_norm(part)
            part.mul_(2.0 ** math.floor(min(0.0, room)))
        return self._struck(G) if self.in_gradient else G

    def _struck(self, X: Tensor) -> Tensor:
        if self.bad is None or X.numel() == 0:
            return X
        X = X.clone()
        X[torch.unravel_index(torch.tensor(self.place % X.numel()), X.shape)] = self.bad
        return X


@st.composite
def batches(draw: st.DrawFn) -> list[Damaged]:
    """Up to five weights, some of them alike in size and type, so that they are joined to one batch."""
    any_case = cases(sizes=MODERATE, entries=2**10)
    first = draw(any_case)
    many = [first]
    for _ in range(draw(st.integers(0, 4))):
        if draw(st.booleans()):
            damage, seed = draw(st.sampled_from(list(DAMAGE))), draw(st.integers(0, 2**32 - 1))
            alike = replace(first, d=first.d + draw(st.integers(0, 2)), damage=damage, seed=seed)
            many.append(replace(alike, condition=10 ** draw(st.floats(0, 12))))
        else:
            many.append(draw(any_case))
    bad = st.sampled_from([None, math.nan, math.inf, -math.inf])
    return [Damaged(case, draw(bad), draw(st.booleans()), draw(st.integers(0, 2**16))) for case in many]


def reach(method: str) -> float:
    return 1.0 if method == "eigh" else NEWTON_REACH


def groups(X: Tensor, case: Case) -> list[Tensor]:
    """Each group of each matrix."""
    return [group for part in parts(X, case) for group in part]


def each(values: list[Tensor]) -> list[float]:
    """The number of each group of each matrix, in the order of `groups`."""
    return [float(x) for value in values for x in value]


def compare(figures: Figures, name: str, got: Tensor, expected: Tensor, limit: float, scale: float = 1.0) -> None:
    """Assert of one group that the same entries are numbers, and that these agree."""
    assert torch.equal(got.isfinite(), expected.isfinite())
    difference = torch.where(got.isfinite(), got.double() - expected.double(), 0).abs().max().item()
    figures.expect(name, difference / scale, limit)


def mapped_together(Vs: list[Tensor], Gs: list[Tensor], many: list[Damaged], method: str):
    """W of each weight and dL/dV, by one call."""
    Xs = [V.detach().requires_grad_() for V in Vs]
    with nothing_else_changes(*Vs, *Gs):
        rows = [Rows(X, one.case.sizes, one.case.center, method, "float64") for X, one in zip(Xs, many, strict=True)]
        Ws = orthonormalize_together(rows)
        gradients = torch.autograd.grad(Ws, Xs, Gs)
    return [W.detach() for W in Ws], gradients


@given(batches(), METHOD_NAMES)
def test_damaged_weights_together_are_those_one_by_one(figures: Figures, many: list[Damaged], method: str):
    name = "together is one by one where some are not finite or have lost rank"
    figures.case(name)
    Vs = [one.matrices() for one in many]
    Gs = [one.gradient(V, method) for V, one in zip(Vs, many, strict=True)]
    for one, V, G, W, gradient in zip(many, Vs, Gs, *mapped_together(Vs, Gs, many, method), strict=True):
        case = one.case
        alone, derivative = run(V, G, case, method)
        sound = torch.where(V.isfinite(), V, 0)
        condition, root = conditions(sound, case), log2_roots(sound, case, reach(method))
        columns = [groups(X, case) for X in (V, G, W, alone, gradient, derivative)]
        numbers = (
            each(condition),
            each(root),
            each([lost(c, n, method) for c, n in zip(condition, case.sizes, strict=True)]),
        )
        for v, g, w, w_alone, dv, dv_alone, c, p, off in zip(*columns, *numbers, strict=True):
            if not v.isfinite().all():
                assert w.isnan().all()
                assert dv.isnan().all()
                assert dv_alone.isnan().all()
                continue
            assert w.isfinite().all()
            limit = same(V.dtype) + (0.0 if c <= WELL else 2 * off)
            compare(figures, name, w, w_alone, limit)
            if g.isfinite().all():
                assert dv.isfinite().all()
                compare(figures, name, dv, dv_alone, limit, 2.0 ** max(-1000.0, p + log2_norm(g)))
            else:
                assert not dv.isfinite().all()
                assert torch.equal(dv.isfinite(), dv_alone.isfinite())
            if c <= WELL:  # and right, not only the same
                error = orthogonality_errors(w).item()
                figures.worst(name, str(V.dtype).removeprefix("torch."), error)
                figures.expect(name, error, tolerance(V.dtype, len(w)))
