"""The six convolutions under attack: however they stride, pad, dilate and group, it is torch's layer of an orthogonal
kernel, whose rows are its filters."""

import copy
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import orthonorm as on
from campaign.cases import NIGHTLY, tolerance
from campaign.checks import WELL, built
from campaign.figures import Figures
from orthogonal_layers import CLASSES, error_of_rows, filters, map_of, polar, weight
from orthonorm.functional._groups import GROUPINGS

CHANNELS = 8 if NIGHTLY else 4
CONVOLUTIONS = {plain.__name__: (ours, plain) for ours, plain in CLASSES if plain is not nn.Linear}
each_kind = pytest.mark.parametrize("kind", CONVOLUTIONS)
# ... each with a third of the cases: the first few of a search are small ones, and alike.
a_third = settings(max_examples=settings.get_profile(settings.get_current_profile_name()).max_examples // 3)
# torch says so of "same" padding with an even kernel.
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")


@dataclass(frozen=True)
class Convolution:
    """One of torch's six, its arguments, an input's size, and how its kernel is made orthogonal."""

    kind: str
    channels: tuple[int, int]
    torchs: tuple[tuple[str, Any], ...]
    size: tuple[int, ...]
    options: tuple[tuple[str, Any], ...]
    converted: bool
    seed: int

    def plain(self, *, again: int = 0) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed + again)
            return CONVOLUTIONS[self.kind][1](*self.channels, **dict(self.torchs))

    def layer(self) -> Any:
        """The layer, a learned scale other than 1 and of both signs."""
        if self.converted:
            layer = self.orthogonal(self.plain())
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                layer = CONVOLUTIONS[self.kind][0](*self.channels, **dict(self.torchs), **dict(self.options))
        scale = map_of(layer).scale
        if isinstance(scale, Tensor):
            with torch.no_grad():
                scale.copy_(0.5 + 1.5 * torch.rand(scale.shape, generator=self.generator())).mul_(signs(len(scale)))
        return layer

    def orthogonal(self, plain: nn.Module) -> Any:
        return on.orthogonal_weight_norm(plain, **dict(self.options))

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)

    def input(self) -> Tensor:
        shape = (2, self.channels[0], *self.size)
        return torch.randn(shape, generator=self.generator(), dtype=dict(self.torchs)["dtype"])

    @property
    def sizes(self) -> tuple[int, ...]:
        """The groups of rows, by the rule of the documentation."""
        options, groups = dict(self.options), dict(self.torchs)["groups"]
        limit = self.channels[0] // groups * math.prod(dict(self.torchs)["kernel_size"]) - options["center"]
        found = []
        for n in options["blocks"] or (self.channels[1] // groups,) * groups:
            most = min(options["group_size"] or limit, limit)
            count = math.ceil(n / most)
            if options["grouping"] == "balanced":
                found += [len(part) for part in torch.arange(n).tensor_split(count)]
            else:
                found += [most] * (count - 1) + [n - most * (count - 1)]
        return tuple(found)


def signs(count: int) -> Tensor:
    return 1.0 - 2.0 * (torch.arange(count) % 3 == 1)


@st.composite
def convolutions(draw: st.DrawFn, kind: str) -> Convolution:
    transposed, dimensions = "Transpose" in kind, int(kind[-2])

    def each(low: int, high: int) -> tuple[int, ...]:
        return tuple(draw(st.lists(st.integers(low, high), min_size=dimensions, max_size=dimensions)))

    kernel, stride, dilation, groups = each(1, 3), each(1, 3), each(1, 2), draw(st.integers(1, 3))
    inputs, outputs = draw(st.integers(1, CHANNELS)), draw(st.integers(1, CHANNELS))
    torchs: dict[str, Any] = {"kernel_size": kernel, "stride": stride, "dilation": dilation, "groups": groups}
    torchs |= {"bias": draw(st.booleans()), "dtype": draw(st.sampled_from([torch.float32, torch.float64]))}
    torchs["padding"] = each(0, 2)
    if transposed:
        room = [max(pair) - 1 for pair in zip(stride, dilation, strict=True)]
        torchs["output_padding"] = tuple(draw(st.integers(0, most)) for most in room)
    else:
        torchs["padding_mode"] = draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"]))
        word = draw(st.sampled_from([None, "valid", "same"]))
        torchs |= {} if word is None else {"padding": word}
        torchs |= {"stride": 1} if word == "same" else {}
    d = inputs * math.prod(kernel)
    center = draw(st.booleans()) and d > 2
    options = {"center": center, "grouping": draw(st.sampled_from(GROUPINGS)), "blocks": None}
    options["group_size"] = draw(st.none() | st.integers(1, d - center))
    options["scale"] = draw(st.sampled_from([None, "row_norms", 0.5, 3.0]))
    options["method"] = draw(st.sampled_from(["auto", "eigh", "newton"]))
    if groups == 1 and outputs > 1 and draw(st.booleans()):
        cut = draw(st.integers(1, outputs - 1))
        options["blocks"] = (cut, outputs - cut)
    return Convolution(
        kind=kind,
        channels=(inputs * groups, outputs * groups),
        torchs=tuple(torchs.items()),
        size=each(5, 6),  # no window of 3 entries, every second one, is larger
        options=tuple(options.items()),
        converted=draw(st.booleans()),
        seed=draw(st.integers(0, 2**31)),
    )


def backward(module: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """The output, and the gradient at the input of a loss that is linear in it."""
    x = x.clone().requires_grad_()
    output = module(x)
    generator = torch.Generator().manual_seed(0)
    output.backward(torch.randn(output.shape, generator=generator, dtype=output.dtype))
    assert x.grad is not None
    return output.detach(), x.grad


def difference(one: Tensor, other: Tensor) -> float:
    """The largest difference, in units of the largest entry."""
    assert one.shape == other.shape
    assert one.isfinite().all()
    one, other = one.detach(), other.detach()
    return float((one - other).abs().max() / one.abs().max().clamp_min(torch.finfo(one.dtype).tiny))


@each_kind
@a_third
@given(data=st.data())
def test_it_computes_what_torchs_layer_of_its_kernel_computes(figures: Figures, kind: str, data: st.DataObject):
    case = data.draw(convolutions(kind))
    name = "the six convolutions: torch's layer of the folded kernel"
    figures.case(name)
    layer, plain, x = case.layer(), case.plain(again=1), case.input()
    folded: Any = on.fold(layer)
    assert type(folded) is type(plain)
    plain.load_state_dict(folded.state_dict(), strict=True)
    assert torch.equal(plain.weight, weight(layer))
    with on.cached(layer):
        W = weight(layer)
        W.retain_grad()
        output, at_input = backward(layer, x)
    limit = 64 * torch.finfo(x.dtype).eps
    for module in (plain, folded):
        for got, expected in zip(backward(module, x), (output, at_input), strict=True):
            figures.expect(name, difference(got, expected), limit)
        assert W.grad is not None
        figures.expect(name, difference(module.weight.grad, W.grad), limit)


@each_kind
@a_third
@given(data=st.data())
def test_the_filters_are_the_nearest_orthonormal_ones(figures: Figures, kind: str, data: st.DataObject):
    case = data.draw(convolutions(kind))
    name = "the six convolutions: filters of a group orthonormal, and the nearest"
    figures.case(name)
    layer = built(case.layer)
    scale, start = map_of(layer).scale, filters(case.plain())
    factor = scale.detach().double() if isinstance(scale, Tensor) else torch.tensor(float(scale or 1.0))
    W = filters(layer).double() / factor.view(-1, 1)
    for rows, V in zip(W.split(case.sizes), start.split(case.sizes), strict=True):
        used = V.abs().sum(0) > 0  # not the columns of the other groups of the convolution
        V = V[:, used].double()
        s = torch.linalg.svdvals(V - V.mean(-1, keepdim=True) if dict(case.options)["center"] else V)
        if s[0] > WELL * s[-1]:
            continue
        dtype = start.dtype
        error = error_of_rows(rows, (len(rows),))
        figures.worst(name, str(dtype).removeprefix("torch."), error)
        figures.expect(name, error, tolerance(dtype, len(rows), "auto"))
        nearest = polar(V, center=dict(case.options)["center"])
        assert not rows[:, ~used].any()
        figures.expect(name, (rows[:, used] - nearest).abs().max().item(), 1e-9 if dtype == torch.float64 else 1e-5)


@each_kind
@a_third
@given(data=st.data())
def test_an_orthogonal_kernel_is_converted_and_recentred_to_itself(figures: Figures, kind: str, data: st.DataObject):
    case = data.draw(convolutions(kind))
    name = "the six convolutions: an orthogonal one converted, loaded or recentred is the same function"
    figures.case(name)
    layer = built(lambda: on.renormalize_(case.layer()))
    x = case.input()
    expected = layer(x)
    limit = 64 * torch.finfo(x.dtype).eps
    converted = case.orthogonal(on.fold(layer))
    figures.expect(name, difference(converted(x), expected), limit)
    # A plain checkpoint is taken as a layer is converted.
    other = case.orthogonal(case.plain(again=1))
    other.load_state_dict(on.fold(layer).state_dict(), strict=True)
    figures.expect(name, difference(other(x), expected), limit)
    recentred = on.renormalize_(copy.deepcopy(converted), norm=3.0)
    figures.expect(name, difference(recentred(x), expected), limit)
