"""Layers in float16 and bfloat16 under attack: exact to their type, finite, and the same after saving and folding."""

import copy
import io
import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import orthonorm as on
from campaign.cases import NIGHTLY, conditions, distance, parts
from campaign.checks import NEWTON_REACH, WELL, log2_norm, log2_roots
from campaign.figures import Figures
from oracle import gradient_of_polar
from orthogonal_layers import free, map_of, polar, weight
from orthonorm.functional._groups import GROUPINGS
from orthonorm.functional._orthogonality import orthogonality_errors

WIDTH = 64 if NIGHTLY else 24
# Sizes of V: some at which its entries keep their digits, and the ends of the type, where they lose them.
SIZES = {
    torch.float16: (1.0, 2.0**-8, 2.0**8, 2.0**-18, 2.0**16),
    torch.bfloat16: (1.0, 2.0**-60, 2.0**60, 2.0**-124, 2.0**127),
}
# By the number of arguments without a default.
CLASSES: dict[int, tuple[Any, Any]] = {2: (on.OrthogonalLinear, nn.Linear), 3: (on.OrthogonalConv2d, nn.Conv2d)}
WAYS = ("dtype=", "converted", "plain layer")


@dataclass(frozen=True)
class Half:
    """A linear layer or convolution in half precision, and how it came to be of that type."""

    arguments: tuple[int, ...]
    groups: int
    bias: bool
    dtype: torch.dtype
    way: str
    size: float
    options: tuple[tuple[str, Any], ...]
    seed: int

    def layer(self, *, again: int = 0) -> Any:
        """The layer; `again` starts it elsewhere."""
        options: dict[str, Any] = dict(self.options)
        more: dict[str, Any] = {"bias": self.bias}
        more |= {} if len(self.arguments) == 2 else {"groups": self.groups, "padding": 1}
        ours, plain = CLASSES[len(self.arguments)]
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*has lost .* directions")  # rounded, rows may repeat
            torch.manual_seed(self.seed + again)
            if self.way == "plain layer":
                layer: Any = plain(*self.arguments, **more, dtype=self.dtype)
                return on.orthogonal_weight_norm(self._sized(layer, layer.weight), **options)
            dtype = self.dtype if self.way == "dtype=" else None
            layer = ours(*self.arguments, **more, dtype=dtype, **options)
            layer = self._sized(layer, free(layer))
        if self.way == "dtype=":
            return layer
        return layer.half() if self.dtype == torch.float16 else layer.bfloat16()

    def _sized(self, layer: nn.Module, V: Tensor) -> nn.Module:
        with torch.no_grad():
            V.mul_(self.size)
        return layer

    def input(self) -> Tensor:
        shape = (3, self.arguments[0]) if len(self.arguments) == 2 else (2, self.arguments[0], 5, 4)
        return torch.randn(shape, generator=torch.Generator().manual_seed(self.seed)).to(self.dtype)


@st.composite
def halves(draw: st.DrawFn) -> Half:
    inputs, outputs, center = draw(st.integers(3, WIDTH)), draw(st.integers(1, WIDTH)), draw(st.booleans())
    kernel, groups = draw(st.sampled_from([(0, 1), (1, 1), (2, 1), (3, 1), (3, 2), (2, 3)]))
    options: dict[str, Any] = {
        "center": center,
        "grouping": draw(st.sampled_from(GROUPINGS)),
        "scale": draw(st.sampled_from([None, "learned", "row_norms", 0.5, 3.0])),
        "method": draw(st.sampled_from(["auto", "eigh", "newton"])),
        "group_size": draw(st.none() | st.integers(1, inputs * max(1, kernel) ** 2 - center)),
    }
    dtype, way = draw(st.sampled_from(list(SIZES))), draw(st.sampled_from(WAYS))
    # A scale that starts at the norms of the rows is the size of the outputs, which must be numbers of the type.
    sizes = SIZES[dtype][:3] if way == "plain layer" and options["scale"] == "row_norms" else SIZES[dtype]
    return Half(
        arguments=(inputs * groups, outputs * groups, kernel) if kernel else (inputs, outputs),
        groups=groups,
        bias=draw(st.booleans()),
        dtype=dtype,
        way=way,
        size=draw(st.sampled_from(sizes)),
        options=tuple(options.items()),
        seed=draw(st.integers(0, 2**31)),
    )


def rows(layer: Any, X: Tensor) -> list[Tensor]:
    """A tensor of the weight's shape as the rows of each group."""
    owner = map_of(layer)
    return parts(owner.rows(X.detach()), owner)


def well(layer: Any) -> list[Tensor]:
    owner = map_of(layer)
    return [condition <= WELL for condition in conditions(owner.rows(free(layer).detach()), owner)]


@given(half=halves())
def test_a_half_precision_weight_is_the_exact_one_rounded_once(figures: Figures, half: Half):
    name = "float16 and bfloat16 layers: W the nearest orthonormal matrix, rounded once"
    figures.case(name)
    layer = half.layer()
    W, V, eps = weight(layer).detach(), free(layer).detach(), torch.finfo(half.dtype).eps
    assert {p.dtype for p in layer.parameters()} == {W.dtype} == {half.dtype}
    assert W.isfinite().all()
    owner = map_of(layer)
    W = owner.orthonormal_rows(V)
    found = conditions(owner.rows(V), owner)
    for part, start, good, condition in zip(parts(W, owner), rows(layer, V), well(layer), found, strict=True):
        if not good.any():
            continue
        right = polar(start.double() / start.abs().amax(), center=owner.center)
        off = (part.double() - right).abs().amax((-2, -1)) / right.abs().amax((-2, -1))
        # Computed in float32, then rounded.
        slack = math.sqrt(start.shape[-1]) * distance(owner.method, condition)
        figures.expect(name, (off - slack)[good].max().item(), 0.505 * eps)
        # By Cauchy and Schwarz rounding leaves twice half an eps.
        error = orthogonality_errors(part)[good].max().item()
        figures.worst(name, str(half.dtype).removeprefix("torch."), error)
        figures.expect(name, error, 1.05 * eps + 6e-5)


def learned_gradient(layer: Any) -> list[Tensor] | list[None]:
    """The gradient of a learned scale for the rows of each group; None for each where it is not learned."""
    owner = map_of(layer)
    if not isinstance(owner.scale, Tensor):
        return [None] * len(owner.sizes)
    assert owner.scale.grad is not None
    return parts(owner.scale.grad.reshape(owner.groups, -1, 1), owner)


def norms(X: Tensor) -> Tensor:
    """log2 of the norm of each matrix, also where its squares are no numbers."""
    return torch.tensor([log2_norm(x) for x in X], dtype=torch.float64)


@given(half=halves())
def test_a_half_precision_gradient_is_the_exact_one(figures: Figures, half: Half):
    name = "float16 and bfloat16 layers: output and gradient finite, the gradient the exact one"
    figures.case(name)
    layer, eps = half.layer(), torch.finfo(half.dtype).eps
    owner, V = map_of(layer), free(layer)
    with on.cached(layer):
        W = weight(layer)
        W.retain_grad()
        output = layer(half.input())
        assert output.dtype == half.dtype
        assert output.isfinite().all()
        output.backward(torch.full_like(output, 2.0**-6))
    assert V.grad is not None
    assert V.grad.dtype == half.dtype
    assert W.grad is not None
    least = eps * torch.finfo(half.dtype).tiny  # from one number of the type to the next, where they are smallest
    scale = torch.ones(W.shape[0]) if owner.scale is None else torch.as_tensor(owner.scale).detach()
    scale = scale.double().expand(W.shape[0]).reshape(owner.groups, -1, 1)
    columns = [rows(layer, V), rows(layer, V.grad), rows(layer, W.grad), parts(scale, owner)]
    at_scale = learned_gradient(layer)
    roots = log2_roots(owner.rows(V.detach()), owner, NEWTON_REACH)
    found = conditions(owner.rows(V.detach()), owner)
    for v, got, dw, g, ds, root, good, condition in zip(*columns, at_scale, roots, well(layer), found, strict=True):
        v, dw = v.double(), dw.double()
        bound = 2.0 ** (root + norms(dw * g))
        representable = (4 * bound < torch.finfo(half.dtype).max) & (2.0 ** (root + 1) < torch.finfo(torch.float32).max)
        assert got[representable].isfinite().all()
        held = representable & good & (bound > 0)
        if not held.any():
            continue
        expected = gradient_of_polar(v, dw * g, center=owner.center)
        off = (got.double() - expected)[held].abs().amax((-2, -1))
        off = (off - least).clamp_min(0) / bound[held] - distance(owner.method, condition)[held]
        figures.expect(name, off.max().item(), eps)
        if ds is not None:  # of each row a sum of products with entries of a row of norm one
            right = (dw * polar(v / v.abs().amax(), center=owner.center)).sum(-1, keepdim=True)
            off = (ds.double() - right)[held].abs().amax((-2, -1)) / 2.0 ** norms(dw)[held]
            figures.expect(name, off.max().item(), 2 * eps)


@given(half=halves())
def test_a_half_precision_layer_is_the_same_after_saving_and_folding(figures: Figures, half: Half):
    name = "float16 and bfloat16 layers: saved, loaded and folded, they compute the same"
    figures.case(name)
    layer, again, x = half.layer(), half.layer(again=1), half.input()
    W, output = weight(layer).detach(), layer(x)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    again.load_state_dict(torch.load(file, weights_only=True), strict=True)
    assert torch.equal(weight(again), W)
    # A layer in float32 takes the state as it is, and is the first one again where it becomes half.
    wide = half.layer(again=2).float()
    wide.load_state_dict(layer.state_dict(), strict=True)
    assert weight(wide).dtype == torch.float32
    assert torch.equal(free(wide), free(layer).float())
    assert torch.equal(weight(wide.to(half.dtype)), W)
    # Folded: torch's own layer of the type, whose state a plain layer takes.
    folded: Any = on.fold(layer)
    assert type(folded) is CLASSES[len(half.arguments)][1]
    assert {p.dtype for p in folded.parameters()} == {half.dtype}
    assert torch.equal(folded.weight, W)
    assert list(folded.state_dict()) == ["weight", "bias"][: 1 + half.bias]
    other = copy.deepcopy(folded)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(folded.state_dict(), strict=True)
    for result in (folded(x), other(x), again(x)):
        size = output.detach().abs().max().double().clamp_min(torch.finfo(half.dtype).tiny)
        off = ((result.double() - output.double()).abs().max() / size).item()
        figures.expect(name, off, 2 * torch.finfo(half.dtype).eps)
