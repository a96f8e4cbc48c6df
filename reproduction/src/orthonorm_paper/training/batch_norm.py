"""Batch normalisation over the whole batch of a run, however many processes it is divided among."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .processes.ranks import world

# What `BatchNorm1d`, `2d` and `3d` are; torch exports no other common name of theirs.
_BatchNorm = nn.modules.batchnorm._BatchNorm


def share_batch_norm(network: nn.Module, device: torch.device) -> nn.Module:
    """Let every batch normalisation use the mean and variance of all processes' samples.

    On a GPU that is ``torch.nn.SyncBatchNorm``, which refuses the CPU: there it is ``SharedBatchNorm``. Parameters stay
    the same objects, and the keys of the state_dict the same.
    """
    if device.type == "cuda":
        return nn.SyncBatchNorm.convert_sync_batchnorm(network)
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, _BatchNorm) and not isinstance(child, SharedBatchNorm):
                setattr(module, name, SharedBatchNorm.like(child))
    return network


class SharedBatchNorm(_BatchNorm):
    """``(x - m) / sqrt(v + eps) * weight + bias``, mean and variance over the equal batches of all processes."""

    @classmethod
    def like(cls, module: _BatchNorm) -> SharedBatchNorm:
        """One with the parameters and buffers of a module of torch's."""
        affine, track = module.affine, module.track_running_stats
        made = cls(module.num_features, module.eps, module.momentum, affine, track)
        made.weight, made.bias = module.weight, module.bias
        made.running_mean, made.running_var = module.running_mean, module.running_var
        made.num_batches_tracked = module.num_batches_tracked
        return made.train(module.training)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"the input must have a batch and channels; got shape {tuple(input.shape)}.")

    def forward(self, input: Tensor) -> Tensor:
        """Normalise; outside training, with the running statistics as torch's own."""
        if not self.training:
            return super().forward(input)
        self._check_input_dim(input)
        axes = [0, *range(2, input.dim())]
        shape = [1, -1] + [1] * (input.dim() - 2)
        count = input.numel() // input.shape[1] * world()
        mean = _Sum.apply(input.sum(axes)) / count
        centred = input - mean.view(shape)
        # A second pass over the data: the difference of two sums of squares would lose digits.
        variance = _Sum.apply(centred.square().sum(axes)) / count
        self._track(mean.detach(), variance.detach() * (count / max(count - 1, 1)))
        normalised = centred * (variance + self.eps).rsqrt().view(shape)
        if not self.affine:
            return normalised
        return normalised * self.weight.view(shape) + self.bias.view(shape)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor) -> None:
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        factor = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
        self.running_var.lerp_(variance.to(self.running_var.dtype), factor)


class _Sum(torch.autograd.Function):
    """Sum over the processes. Each one's loss depends on every term, so its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:  # noqa: ARG004
        values = values.clone()
        if world() > 1:
            dist.all_reduce(values)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ARG004  # pyright: ignore[reportIncompatibleMethodOverride]
        return _Sum.apply(gradient)  # pyright: ignore[reportReturnType]
