"""Layers under attack: however they are grouped, scaled and laid out, they fold, save, load and are cached."""

import copy
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import orthonorm as on
from campaign.cases import NIGHTLY, tolerance
from campaign.checks import built
from campaign.figures import Figures
from orthonorm.functional._groups import GROUPINGS

WIDTH = 64 if NIGHTLY else 24


@dataclass(frozen=True)
class Layer:
    """A layer of torch's, and how its weight is made orthogonal."""

    kind: str
    inputs: int
    outputs: int
    kernel: int
    groups: int
    bias: bool
    dtype: torch.dtype
    channels_last: bool
    size: float
    options: tuple[tuple[str, Any], ...]
    seed: int

    def plain(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            if self.kind == "linear":
                module: nn.Module = nn.Linear(self.inputs, self.outputs, self.bias)
            else:
                make = nn.Conv2d if self.kind == "convolution" else nn.ConvTranspose2d
                channels = self.inputs * self.groups, self.outputs * self.groups
                module = make(*channels, self.kernel, groups=self.groups, bias=self.bias)
        module = module.to(self.dtype)
        with torch.no_grad():
            module.weight.mul_(self.size)  # type: ignore[operator]
        return module.to(memory_format=torch.channels_last) if self.channels_last else module

    def converted(self) -> nn.Module:
        return on.orthogonal_weight_norm(self.plain(), "weight", **dict(self.options))

    def input(self) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        shape = (3, self.inputs) if self.kind == "linear" else (2, self.inputs * self.groups, 5, 5)
        return torch.randn(shape, generator=generator).to(self.dtype)


@st.composite
def layers(draw: st.DrawFn, dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float64, torch.bfloat16)) -> Layer:
    kind = draw(st.sampled_from(["linear", "convolution", "transposed"]))
    inputs, outputs = draw(st.integers(3, WIDTH)), draw(st.integers(1, WIDTH))
    kernel = 1 if kind == "linear" else draw(st.integers(1, 3))
    groups = 1 if kind == "linear" else draw(st.integers(1, 3))
    center = draw(st.booleans())
    options: dict[str, Any] = {
        "center": center,
        "grouping": draw(st.sampled_from(GROUPINGS)),
        "scale": draw(st.sampled_from([None, "learned", "row_norms", 0.5, 3.0])),
        "method": draw(st.sampled_from(["auto", "eigh", "newton"])),
        "group_size": draw(st.none() | st.integers(1, inputs * kernel**2 - center)),
    }
    if groups == 1 and draw(st.booleans()):
        cut = draw(st.integers(0, outputs - 1))
        count = draw(st.sampled_from([k for k in range(1, outputs + 1) if outputs % k == 0]))
        options["blocks"] = draw(st.sampled_from([count, (cut, outputs - cut) if cut else (outputs,)]))
    dtype = draw(st.sampled_from(dtypes))
    extreme = [1.0, 1e-30, 1e30] if dtype != torch.float64 else [1.0, 1e-300, 1e300]
    last = kind != "linear" and draw(st.booleans())
    size, bias = draw(st.sampled_from(extreme)), draw(st.booleans())
    seed = draw(st.integers(0, 2**32 - 1))
    return Layer(kind, inputs, outputs, kernel, groups, bias, dtype, last, size, tuple(options.items()), seed)


def weight(module: Any) -> Tensor:
    return module.weight.detach()


def assert_same_outputs(one: Tensor, other: Tensor) -> None:
    # Kernels of one value in two memory formats are summed in two orders.
    limit = 64 * torch.finfo(one.dtype).eps
    assert one.isfinite().all()
    torch.testing.assert_close(one, other, rtol=limit, atol=limit * float(one.detach().abs().max()))


@given(layer=layers())
def test_a_layer_folds_saves_and_loads(figures: Figures, layer: Layer):
    name = "layers convert, fold, save and load"
    figures.case(name)
    module, plain, again = built(lambda: (layer.converted(), layer.plain(), layer.converted()))
    W, x = weight(module), layer.input()
    error = max(on.orthogonality_error(module).values())
    figures.worst(name, str(layer.dtype).removeprefix("torch."), error)
    figures.expect(name, error, tolerance(layer.dtype, layer.outputs))
    assert W.shape == plain.weight.shape
    # Folded: torch's own module, of the plain one's keys, that computes the same.
    folded = on.fold(module)
    assert type(folded) is type(plain)
    assert list(folded.state_dict()) == list(plain.state_dict())
    assert torch.equal(weight(folded), W)
    assert_same_outputs(folded(x), module(x))
    # The layer's own state, into one that started elsewhere.
    with torch.no_grad():
        for parameter in again.parameters():
            parameter.mul_(-1).add_(0.25)
    again.load_state_dict(module.state_dict(), strict=True)
    assert torch.equal(weight(again), W)
    # A plain checkpoint into the layer, and the folded one's state into a plain module.
    again.load_state_dict(plain.state_dict(), strict=True)
    assert torch.equal(weight(again), W)
    plain.load_state_dict(folded.state_dict(), strict=True)
    assert_same_outputs(plain(x), folded(x))


def agreement(W: Tensor) -> float:
    # The stated 1e-5: sums in another order differ by the type's rounding times a condition that is not bounded here.
    return max(1e-5, 2 * torch.finfo(W.dtype).eps) * max(1.0, float(W.abs().max()))


def upstream(output: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(output.shape, generator=generator, dtype=output.dtype)


@given(st.lists(layers(dtypes=(torch.float32, torch.float64)), min_size=1, max_size=4), st.booleans())
def test_cached_together_is_layer_by_layer(figures: Figures, many: list[Layer], copied: bool):
    name = "cached is layer by layer"
    figures.case(name)
    model = nn.ModuleList(layer.converted() for layer in many)
    model = copy.deepcopy(model) if copied else model
    inputs = [layer.input() for layer in many]
    results = []
    for together in (False, True):
        model.zero_grad()
        with on.cached(model) if together else nullcontext():
            Ws = [weight(module) for module in model]
            outputs = [module(x) for module, x in zip(model, inputs, strict=True)]
            # A loss that is linear in the outputs: of large ones, a sine would be of their last digits.
            torch.autograd.backward(outputs, [upstream(output) for output in outputs])
        results.append((Ws, [p.grad for p in model.parameters()]))
    for one, other in zip(*(Ws for Ws, _ in results), strict=True):
        figures.expect(name, (one - other).double().abs().max().item(), agreement(one))
    for one, other in zip(*(grads for _, grads in results), strict=True):
        size = one.double().abs().max().clamp_min(torch.finfo(one.dtype).tiny)
        figures.expect(name, float((one.double() - other.double()).abs().max() / size), 1e-3)


@given(layer=layers())
def test_the_memory_format_of_a_kernel_does_not_matter(figures: Figures, layer: Layer):
    name = "channels_last kernels give the same W"
    figures.case(name)
    module = built(layer.converted)
    W = weight(module)
    if W.ndim == 4:
        other = copy.deepcopy(module).to(memory_format=torch.channels_last)
        figures.expect(name, (weight(other) - W).double().abs().max().item(), agreement(W))
