"""Layers of every kind, and what they are made of, read off in ways that the library does not use."""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import orthonorm as on


def weight(module: Any) -> Tensor:
    return module.weight


def free(module: Any, name: str = "weight") -> nn.Parameter:
    return module.parametrizations[name].original


def map_of(module: Any, name: str = "weight") -> on.OrthogonalWeightNorm:
    return module.parametrizations[name][0]


def scale(module: Any) -> nn.Parameter:
    return module.parametrizations["weight"][0].scale


def matrix(n: int, d: int, values: list[float] | Tensor, *, dtype: torch.dtype = torch.float64) -> Tensor:
    """A random `n x d` matrix of the given singular values whose rows sum to zero where `n < d`."""
    left = torch.linalg.qr(torch.randn(n, n, dtype=torch.float64))[0]
    seed = torch.randn(d, n, dtype=torch.float64)
    right = torch.linalg.qr(seed - seed.mean(0) if n < d else seed)[0]
    return (left @ torch.diag(torch.as_tensor(values, dtype=torch.float64)) @ right.T).to(dtype)


def polar(V: Tensor, *, center: bool) -> Tensor:
    """The orthonormal matrix nearest to V (with centred rows), by the singular value decomposition."""
    V = V.detach().double()
    U, _, Rt = torch.linalg.svd(V - V.mean(-1, keepdim=True) if center else V, full_matrices=False)
    return U @ Rt


def well_conditioned(X: Tensor, sizes: tuple[int, ...] | None = None, *, center: bool = False) -> Tensor:
    """The V that a matrix X starts as: the orthonormal rows nearest to it, times one number that keeps its norm."""
    X = X.detach().double()
    W = torch.cat([polar(part, center=center) for part in X.split(sizes or (len(X),))])
    return X.norm() / W.norm() * W


CONVOLUTIONS = (F.conv1d, F.conv2d, F.conv3d)
TRANSPOSED = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)


def filters(layer: Any) -> Tensor:
    """What each output channel takes from the inputs that reach one position of it: `(out, inputs)`.

    The layer's own function is applied to the unit inputs, so nothing is assumed of the layout of its weight. Channels
    of different convolution groups have disjoint inputs, hence are orthogonal.
    """
    if isinstance(layer, nn.Linear):
        return F.linear(torch.eye(layer.in_features, dtype=weight(layer).dtype), layer.weight).T.detach()
    reach = [step * (k - 1) for k, step in zip(layer.kernel_size, layer.dilation, strict=True)]
    shape = (layer.in_channels, *(r + 1 for r in reach))
    unit = torch.eye(math.prod(shape), dtype=weight(layer).dtype).view(-1, *shape)
    settings: dict[str, Any] = {"groups": layer.groups, "dilation": layer.dilation}
    if layer.transposed:
        output = TRANSPOSED[len(reach) - 1](unit, layer.weight, padding=reach, **settings)
    else:
        output = CONVOLUTIONS[len(reach) - 1](unit, layer.weight, **settings)
    assert output[0].numel() == layer.out_channels
    return output.flatten(1).T.detach()


def error_of_rows(rows: Tensor, sizes: tuple[int, ...]) -> float:
    """The largest entry of |W W^T - I| over groups of neighbouring rows."""
    assert sum(sizes) == len(rows)
    parts = rows.double().split(sizes)
    return max(float((part @ part.T - torch.eye(len(part), dtype=torch.float64)).abs().max()) for part in parts)


@dataclass(frozen=True)
class Kind:
    """One layer: our class, torch's, the arguments of both, an input's shape, and the groups of rows to expect."""

    name: str
    ours: Any
    plain: Any
    args: tuple
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)

    def build(self, **mine: Any) -> Any:
        return self.ours(*self.args, **self.options, **mine)

    def build_plain(self, **more: Any) -> Any:
        return self.plain(*self.args, **self.options, **more)


Linear, Conv1d, Conv2d, Conv3d = (
    (on.OrthogonalLinear, nn.Linear),
    (on.OrthogonalConv1d, nn.Conv1d),
    (on.OrthogonalConv2d, nn.Conv2d),
    (on.OrthogonalConv3d, nn.Conv3d),
)
Transposed1d, Transposed2d, Transposed3d = (
    (on.OrthogonalConvTranspose1d, nn.ConvTranspose1d),
    (on.OrthogonalConvTranspose2d, nn.ConvTranspose2d),
    (on.OrthogonalConvTranspose3d, nn.ConvTranspose3d),
)
CLASSES = (Linear, Conv1d, Conv2d, Conv3d, Transposed1d, Transposed2d, Transposed3d)

KINDS = (
    Kind("linear", *Linear, (9, 6), (5, 9), (6,)),
    Kind("linear of several groups", *Linear, (5, 10), (5, 5), (5, 5)),
    Kind("convolution 1d", *Conv1d, (4, 6, 3), (2, 4, 9), (6,), {"stride": 2, "padding": 2}),
    Kind(
        "circular dilated 1d",
        *Conv1d,
        (4, 6, 3),
        (2, 4, 9),
        (6,),
        {"padding": 2, "dilation": 2, "padding_mode": "circular"},
    ),
    Kind("same padding 2d", *Conv2d, (3, 8, 3), (2, 3, 6, 6), (8,), {"padding": "same"}),
    Kind("grouped 2d", *Conv2d, (4, 6, 3), (2, 4, 6, 6), (3, 3), {"groups": 2, "bias": False}),
    Kind(
        "depthwise 2d with a multiplier",
        *Conv2d,
        (2, 32, 3),
        (2, 2, 6, 6),
        (8, 8, 8, 8),
        {"groups": 2, "padding": 1, "padding_mode": "reflect"},
    ),
    Kind("dilated 3d", *Conv3d, (2, 4, 2), (2, 2, 4, 4, 4), (4,), {"dilation": (1, 2, 1)}),
    Kind("transposed 1d", *Transposed1d, (4, 6, 3), (2, 4, 5), (6,), {"stride": 2, "output_padding": 1}),
    Kind(
        "transposed grouped 2d",
        *Transposed2d,
        (4, 6, 3),
        (2, 4, 5, 5),
        (3, 3),
        {"stride": 2, "padding": 1, "groups": 2, "dilation": 2},
    ),
    Kind("transposed 2d", *Transposed2d, (6, 4, (3, 2)), (2, 6, 5, 5), (4,)),
    Kind("transposed grouped 3d", *Transposed3d, (2, 4, 2), (2, 2, 3, 3, 3), (2, 2), {"groups": 2}),
)


def name_of(kind: Kind) -> str:
    return kind.name
