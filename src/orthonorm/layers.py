"""Linear and convolutional layers with orthogonal weights: torch's own classes with one parametrization.

Every constructor argument of torch's class is accepted, in torch's order. The keyword-only ones are those of
`orthogonal_weight_norm`, except `stacked`.
"""

from typing import Literal

import torch
from torch import nn

from orthonorm.functional._option_types import Grouping, MethodName, Precision, Tall
from orthonorm.parametrizations._options import Blocks, Initial, Options, Scale
from orthonorm.parametrizations._registration import make_orthogonal

__all__ = [
    "OrthogonalConv1d",
    "OrthogonalConv2d",
    "OrthogonalConv3d",
    "OrthogonalConvTranspose1d",
    "OrthogonalConvTranspose2d",
    "OrthogonalConvTranspose3d",
    "OrthogonalLinear",
]

Device = torch.device | str | int | None
Size = int | tuple[int, ...]


class OrthogonalLinear(nn.Linear):
    r"""A linear layer whose weight has orthonormal rows: $y = W x + b$, $W W^T = I$ in each group of rows.

    Args:
        in_features, out_features, bias, device, dtype: as in `torch.nn.Linear`.
        group_size, center, grouping, tall, scale, initial, blocks, method, precision: as in `orthogonal_weight_norm`.

    Raises:
        ValueError: if the groups cannot be orthonormal.

    Examples:
        >>> import torch, orthonorm as on
        >>> layer = on.OrthogonalLinear(64, 32)
        >>> layer(torch.ones(2, 64)).shape
        torch.Size([2, 32])

    Source: the orthogonal linear module (OLM), Algorithms 1 and 2 of the paper.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        group_size: int | None = None,
        center: bool = False,
        grouping: Grouping = "balanced",
        tall: Tall = "groups",
        scale: Scale = None,
        initial: Initial = "orthonormal",
        blocks: Blocks = None,
        method: MethodName = "auto",
        precision: Precision = "auto",
    ) -> None:
        super().__init__(in_features, out_features, bias, device, dtype)
        options = Options(group_size=group_size, center=center, grouping=grouping, tall=tall, scale=scale,
                          initial=initial, blocks=blocks, method=method, precision=precision)  # fmt: skip
        make_orthogonal(self, options)


class _OrthogonalConv:
    """The constructor that the three convolutions share; torch's class comes after it in the order of bases."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: str | Size = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: Literal["zeros", "reflect", "replicate", "circular"] = "zeros",
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        group_size: int | None = None,
        center: bool = False,
        grouping: Grouping = "balanced",
        tall: Tall = "groups",
        scale: Scale = None,
        initial: Initial = "orthonormal",
        blocks: Blocks = None,
        method: MethodName = "auto",
        precision: Precision = "auto",
    ) -> None:
        arguments = (in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode)
        super().__init__(*arguments, device, dtype)  # pyright: ignore[reportCallIssue]  (the next base is torch's)
        options = Options(group_size=group_size, center=center, grouping=grouping, tall=tall, scale=scale,
                          initial=initial, blocks=blocks, method=method, precision=precision)  # fmt: skip
        make_orthogonal(self, options)  # type: ignore[arg-type]


class _OrthogonalConvTranspose:
    """The constructor that the three transposed convolutions share."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: Literal["zeros"] = "zeros",
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        group_size: int | None = None,
        center: bool = False,
        grouping: Grouping = "balanced",
        tall: Tall = "groups",
        scale: Scale = None,
        initial: Initial = "orthonormal",
        blocks: Blocks = None,
        method: MethodName = "auto",
        precision: Precision = "auto",
    ) -> None:
        arguments = (in_channels, out_channels, kernel_size, stride, padding, output_padding, groups, bias, dilation)
        super().__init__(*arguments, padding_mode, device, dtype)  # pyright: ignore[reportCallIssue]
        options = Options(group_size=group_size, center=center, grouping=grouping, tall=tall, scale=scale,
                          initial=initial, blocks=blocks, method=method, precision=precision)  # fmt: skip
        make_orthogonal(self, options)  # type: ignore[arg-type]


class OrthogonalConv1d(_OrthogonalConv, nn.Conv1d):
    r"""A convolution of signals with an orthogonal kernel: $W W^T = I$ in each group of the rows of $W$.

    $W$ is the kernel flattened to `(out, in/groups * k)`. The kernel is orthogonal, not the convolution as an
    operator, whose norm can exceed 1 where windows overlap.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype:
            as in `torch.nn.Conv1d`.
        group_size, center, grouping, tall, scale, initial, blocks, method, precision: as in `orthogonal_weight_norm`.

    Raises:
        ValueError: if the groups cannot be orthonormal.

    Examples:
        >>> import torch, orthonorm as on
        >>> W = on.OrthogonalConv1d(16, 32, 3, padding=1).weight.flatten(1)
        >>> torch.dist(W @ W.T, torch.eye(32)) < 1e-5
        tensor(True)
    """


class OrthogonalConv2d(_OrthogonalConv, nn.Conv2d):
    r"""A convolution of images with an orthogonal kernel: $W W^T = I$ in each group of the rows of $W$.

    $W$ is the kernel flattened to `(out, in/groups * k^2)`. The kernel is orthogonal, not the convolution as an
    operator, whose norm can exceed 1 where windows overlap.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype:
            as in `torch.nn.Conv2d`.
        group_size, center, grouping, tall, scale, initial, blocks, method, precision: as in `orthogonal_weight_norm`.

    Raises:
        ValueError: if the groups cannot be orthonormal.

    Examples:
        >>> import torch, orthonorm as on
        >>> W = on.OrthogonalConv2d(16, 32, 3, padding=1).weight.flatten(1)
        >>> torch.dist(W @ W.T, torch.eye(32)) < 1e-5
        tensor(True)

    Source: the orthogonal linear module (OLM) for convolutional layers, in the paper.
    """


class OrthogonalConv3d(_OrthogonalConv, nn.Conv3d):
    r"""A convolution of volumes with an orthogonal kernel: $W W^T = I$ in each group of the rows of $W$.

    $W$ is the kernel flattened to `(out, in/groups * k^3)`. The kernel is orthogonal, not the convolution as an
    operator, whose norm can exceed 1 where windows overlap.

    Args:
        in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype:
            as in `torch.nn.Conv3d`.
        group_size, center, grouping, tall, scale, initial, blocks, method, precision: as in `orthogonal_weight_norm`.

    Raises:
        ValueError: if the groups cannot be orthonormal.

    Examples:
        >>> import torch, orthonorm as on
        >>> W = on.OrthogonalConv3d(16, 32, 3, padding=1).weight.flatten(1)
        >>> torch.dist(W @ W.T, torch.eye(32)) < 1e-5
        tensor(True)
    """


class OrthogonalConvTranspose1d(_OrthogonalConvTranspose, nn.ConvTranspose1d):
    r"""A transposed convolution of signals whose output filters are orthonormal: $W W^T = I$ in each group of rows.

    torch keeps its kernel as `(in, out/groups, ...)`; a row of $W$ is an output channel, `in/groups * k` entries.

    Args:
        in_channels, out_channels, kernel_size, ..., dtype: as in `torch.nn.ConvTranspose1d`, in its order.
        group_size, center, grouping, tall, scale, initial, blocks, method, precision: as in `orthogonal_weight_norm`.

    Raises:
        ValueError: if the groups cannot be orthonormal.

    Examples:
        >>> import torch, orthonorm as on
        >>> W = on.OrthogonalConvTranspose1d(16, 8, 3).weight.transpose(0, 1).flatten(1)
        >>> torch.dist(W @ W.T, torch.eye(8)) < 1e-5
        tensor(True)
    """


class OrthogonalConvTranspose2d(_OrthogonalConvTranspose, nn.ConvTranspose2d):
    r"""A transposed convolution of images whose output filters are orthonormal: $W W^T = I$ in each group of rows.

    torch keeps its kernel as `(in, out/groups, ...)`; a row of $W$ is an output channel, `in/groups * k^2` entries.

    Args:
        in_channels, out_channels, kernel_size, ..., dtype: as in `torch.nn.ConvTranspose2d`, in its order.
        group_size, center, grouping, tall, scale, initial, blocks, method, precision: as in `orthogonal_weight_norm`.

    Raises:
        ValueError: if the groups cannot be orthonormal.

    Examples:
        >>> import torch, orthonorm as on
        >>> W = on.OrthogonalConvTranspose2d(16, 8, 3).weight.transpose(0, 1).flatten(1)
        >>> torch.dist(W @ W.T, torch.eye(8)) < 1e-5
        tensor(True)
    """


class OrthogonalConvTranspose3d(_OrthogonalConvTranspose, nn.ConvTranspose3d):
    r"""A transposed convolution of volumes whose output filters are orthonormal: $W W^T = I$ in each group of rows.

    torch keeps its kernel as `(in, out/groups, ...)`; a row of $W$ is an output channel, `in/groups * k^3` entries.

    Args:
        in_channels, out_channels, kernel_size, ..., dtype: as in `torch.nn.ConvTranspose3d`, in its order.
        group_size, center, grouping, tall, scale, initial, blocks, method, precision: as in `orthogonal_weight_norm`.

    Raises:
        ValueError: if the groups cannot be orthonormal.

    Examples:
        >>> import torch, orthonorm as on
        >>> W = on.OrthogonalConvTranspose3d(16, 8, 3).weight.transpose(0, 1).flatten(1)
        >>> torch.dist(W @ W.T, torch.eye(8)) < 1e-5
        tensor(True)
    """
