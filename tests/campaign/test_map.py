"""The map under attack: whatever the weight, what is promised of W and of the gradient holds."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from campaign.cases import (
    LARGEST,
    LAYOUTS,
    METHOD_NAMES,
    MODERATE,
    Case,
    cases,
    conditions,
    parts,
    same,
    tolerance,
)  # fmt: skip
from campaign.checks import NEWTON_REACH, WELL, check_weight, log2_norm, log2_root, nothing_else_changes, run
from campaign.figures import Figures
from orthonorm.functional import orthonormalize
from orthonorm.functional._many_weights import Rows, orthonormalize_together
from orthonorm.functional._orthogonality import orthogonality_errors

WIDE = (torch.float32, torch.float64)


@given(case=cases(), method=METHOD_NAMES)
def test_the_weight_is_orthonormal_or_bounded(figures: Figures, case: Case, method: str):
    name = "orthonormal up to a condition number of 1e3, at most 1 beyond"
    figures.case(name)
    V = case.weight()
    with nothing_else_changes(V):
        W = orthonormalize(V, method=method, precision="float64", **case.options)
    assert W.shape == V.shape
    assert W.dtype == V.dtype
    check_weight(figures, name, V, W, case, method)


@given(case=cases(sizes=(0.45, 0.6)), method=METHOD_NAMES)
def test_in_float32_the_weight_is_orthonormal_or_bounded(figures: Figures, case: Case, method: str):
    name = "in float32: orthonormal up to a condition number of 1e3, at most 1 beyond, the gradient finite"
    V = case.weight()
    assume(V.dtype != torch.float64)
    figures.case(name)
    X = V.detach().requires_grad_()
    with nothing_else_changes(V):
        W = orthonormalize(X, method=method, **case.options)
        (gradient,) = torch.autograd.grad(W, X, case.gradient(V))
    assert gradient.isfinite().all() or V.dtype == torch.float16  # whose largest number is 65504
    for part, condition, n in zip(parts(W.detach(), case), conditions(V, case), case.sizes, strict=True):
        limit = tolerance(V.dtype, n, "auto")
        figures.expect(name, torch.linalg.svdvals(part.double()).max().item() - 1, max(limit, 1e-3))
        if (condition <= WELL).any():
            figures.expect(name, orthogonality_errors(part)[condition <= WELL].max().item(), limit)


@pytest.mark.parametrize(("n", "d"), LARGEST)
@pytest.mark.parametrize("center", [True, False])
def test_the_largest_weights_are_orthonormal(figures: Figures, n: int, d: int, center: bool):
    name = "orthonormal at the largest sides"
    for dtype in WIDE:
        figures.case(name)
        case = Case((), n, d, None, "balanced", center, dtype, "log-spaced", 900.0, 0.5, 0.0, "contiguous", "none", 1)
        V = case.weight()
        check_weight(figures, name, V, orthonormalize(V, center=center, precision="float64"), case, "eigh")


@given(case=cases(), method=METHOD_NAMES, layout=st.sampled_from(list(LAYOUTS)), loss_scale=st.integers(-12, 12))
def test_the_gradient_is_finite_and_bounded(figures: Figures, case: Case, method: str, layout: str, loss_scale: int):
    # With |P Y + Y P| = |P A + A^T P| solved by weighted means of entries of A = G W^T, |dL/dV| <= 2 |P| |G|.
    name = "gradient finite, at most 2 |Sigma^{-1/2}| |G|"
    V = case.weight()
    G = case.gradient(V, layout) * 2.0**loss_scale
    root = log2_root(V, case, 1.0 if method == "eigh" else NEWTON_REACH)
    bound = 1 + root + log2_norm(G)
    narrow = torch.promote_types(V.dtype, torch.float32)
    # Otherwise no number of the dtype is large enough for the gradient.
    assume(max(bound + 1 - math.log2(torch.finfo(V.dtype).max), root + 1 - math.log2(torch.finfo(narrow).max)) <= 0)
    figures.case(name)
    _, gradient = run(V, G, case, method)
    assert gradient.isfinite().all()
    figures.expect(name, 2.0 ** max(-1000.0, log2_norm(gradient) - bound), 1.05)


# Two threads wait for each other wherever a core is busy, so a third of the cases.
@settings(max_examples=settings.get_profile(settings.get_current_profile_name()).max_examples // 3)
@given(case=cases(conditions=(0, 2.9), sizes=MODERATE, dtypes=WIDE, damage=False))
def test_methods_and_numbers_of_threads_agree(figures: Figures, case: Case):
    name = "methods and 1 or 2 threads agree"
    figures.case(name)
    V = case.weight()
    G = case.gradient(V)
    scale = 2.0 ** (log2_root(V, case) + log2_norm(G))
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            results += [run(V, G, case, method) for method in ("eigh", "newton")]
        finally:
            torch.set_num_threads(1)
    for W, gradient in results[1:]:
        figures.expect(name, (W - results[0][0]).abs().max().item(), 1e-5)
        figures.expect(name, ((gradient - results[0][1]) / scale).abs().max().item(), 1e-5)


@given(case=cases(conditions=(0, 2.9), sizes=MODERATE, damage=False), method=METHOD_NAMES)
def test_the_gradient_is_orthogonal_to_the_weight_and_to_row_means(figures: Figures, case: Case, method: str):
    # phi(c V) = phi(V) and, centred, phi(V + b 1^T) = phi(V), differentiated.
    name = "gradient orthogonal to V and, centred, to row means"
    figures.case(name)
    V = case.weight()
    G = case.gradient(V)
    _, gradient = run(V, G, case, method)
    exponent = log2_root(V, case) + log2_norm(G)
    eps = torch.finfo(V.dtype).eps
    for v, g in zip(parts(V.double(), case), parts(gradient.double(), case), strict=True):
        centred = v - v.mean(-1, keepdim=True) if case.center else v
        sizes = 2.0**exponent * centred.norm(dim=(-2, -1)).clamp_min(1e-300)
        figures.expect(name, ((centred * g).sum((-2, -1)) / sizes).abs().max().item(), 64 * eps)
        if case.center:
            figures.expect(name, float(g.mean(-1).abs().max()) / 2.0**exponent, 4 * eps)


def times_power_of_two(X: Tensor, exponent: int) -> Tensor:
    """X 2^exponent in two factors, as one may leave the range of float64."""
    half = exponent // 2
    return (X.double() * 2.0**half * 2.0 ** (exponent - half)).to(X.dtype)


@given(case=cases(damage=False, conditions=(0, 6)), method=METHOD_NAMES, steps=st.integers(1, 2000))
def test_the_size_does_not_matter(figures: Figures, case: Case, method: str, steps: int):
    name = "phi(c V) = phi(V)"
    V = case.weight()
    # Beyond that, what is lost in rounding may differ.
    assume(max(condition.max().item() for condition in conditions(V, case)) <= WELL)
    # c a power of two that loses no digit of V: the results are then of one and the same matrix.
    largest, smallest = (torch.frexp(x.double()).exponent for x in (V.abs().max(), V[V != 0].abs().min()))
    info = torch.finfo(V.dtype)
    room = (
        min(math.frexp(info.max)[1] - int(largest), steps),
        max(0, min(int(smallest) - math.frexp(info.tiny)[1], steps)),
    )
    for c in (room[0], -room[1]):
        scaled = times_power_of_two(V, c)
        assert torch.equal(times_power_of_two(scaled, -c), V)
        figures.case(name)
        W, other = (orthonormalize(X, method=method, precision="float64", **case.options) for X in (V, scaled))
        figures.expect(name, (W - other).abs().max().item(), 4 * info.eps)


@given(case=cases(conditions=(0, 2.9), sizes=MODERATE, damage=False), method=METHOD_NAMES)
def test_a_batch_and_any_memory_are_a_loop(figures: Figures, case: Case, method: str):
    name = "a batch, in any memory, is a loop"
    figures.case(name)
    V = case.weight()
    G = case.gradient(V, case.layout)
    W, gradient = run(V, G, case, method)
    scale = 2.0 ** (log2_root(V, case) + log2_norm(G))
    flat = [X.reshape(-1, case.n, case.d) for X in (V, G, W, gradient)]
    for v, g, w, dv in zip(*flat, strict=True):
        alone, derivative = run(v.clone(), g.clone(), case, method)
        figures.expect(name, (alone.double() - w.double()).abs().max().item(), same(V.dtype))
        figures.expect(name, ((derivative - dv).double() / scale).abs().max().item(), same(V.dtype))


@given(st.lists(cases(conditions=(0, 2.9), sizes=MODERATE, damage=False, entries=2**10), max_size=5), METHOD_NAMES)
def test_together_is_one_by_one(figures: Figures, many: list[Case], method: str):
    name = "together is one by one"
    figures.case(name)
    Vs = [case.weight().reshape(-1, case.n, case.d).detach().requires_grad_() for case in many]
    Gs = [case.gradient(V) for V, case in zip(Vs, many, strict=True)]
    rows = [Rows(V, case.sizes, case.center, method, "float64") for V, case in zip(Vs, many, strict=True)]
    with nothing_else_changes(*Vs, *Gs):
        Ws = orthonormalize_together(rows)
        gradients = torch.autograd.grad(Ws, Vs, Gs) if Ws else []
    for V, G, W, gradient, case in zip(Vs, Gs, Ws, gradients, many, strict=True):
        alone, derivative = run(V, G, case, method)
        limit = same(V.dtype)
        scale = 2.0 ** (log2_root(V, case) + log2_norm(G))
        figures.expect(name, (W.detach() - alone).double().abs().max().item(), limit)
        figures.expect(name, ((gradient - derivative).double() / scale).abs().max().item(), limit)


@given(
    case=cases(damage=False, conditions=(0, 2.9), sizes=MODERATE, entries=2**10),
    method=METHOD_NAMES,
    bad=st.sampled_from([math.nan, math.inf, -math.inf]),
    in_gradient=st.booleans(),
    data=st.data(),
)
def test_what_is_not_finite_stays_in_its_group(
    figures: Figures, case: Case, method: str, bad: float, in_gradient: bool, data: st.DataObject
):
    name = "NaN and infinity stay in their group"
    figures.case(name)
    V = case.weight().clone()
    G = case.gradient(V)
    right = run(V, G, case, method)
    where = tuple(data.draw(st.integers(0, size - 1)) for size in V.shape)
    (G if in_gradient else V)[where] = bad
    W, gradient = run(V, G, case, method)
    hit = torch.zeros(V.shape, dtype=torch.bool)
    ends = torch.tensor(case.sizes).cumsum(0)
    i = int((ends <= where[-2]).sum())
    hit[(*where[:-2], slice(int(ends[i]) - case.sizes[i], int(ends[i])))] = True
    assert torch.equal(W.isnan(), hit & (not in_gradient))
    bad_rows = ~gradient.isfinite().all(-1, keepdim=True) & hit
    assert bad_rows.any()
    assert in_gradient or gradient[hit].isnan().all()
    scale = 2.0 ** (log2_root(torch.where(hit, 0, V), case) + log2_norm(torch.where(hit, 0, G)))
    limit = same(V.dtype)
    for got, expected, size in ((W, right[0], 1.0), (gradient, right[1], max(scale, 1e-300))):
        difference = (got - expected).double()[~hit] / size
        figures.expect(name, difference.abs().max().item() if difference.numel() else 0.0, limit)


@given(
    shape=st.lists(st.integers(0, 3), min_size=0, max_size=3).map(tuple),
    n=st.integers(0, 9),
    d=st.integers(2, 9),
    center=st.booleans(),
    dtype=st.sampled_from([torch.float16, *WIDE]),
    method=METHOD_NAMES,
)
def test_an_empty_batch_is_empty(figures: Figures, shape, n: int, d: int, center: bool, dtype, method: str):
    name = "empty batches"
    figures.case(name)
    V = torch.ones(*shape, 0 if math.prod(shape) else n, d, dtype=dtype, requires_grad=True)
    for X in (V, V.mT.detach().clone().mT.requires_grad_()):
        W = orthonormalize(X, center=center, method=method)
        assert W.shape == V.shape
        assert W.dtype == dtype
        (gradient,) = torch.autograd.grad(W.sum(), X)
        assert gradient.shape == V.shape
