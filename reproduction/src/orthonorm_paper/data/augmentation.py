"""Augmentation as a table of functions on a batch, each driven by a generator of its own."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Note [augmentation]: a generator made from (seed, epoch, batch) is handed to every batch, so that
# a run that continues in the middle of an epoch draws what it would have drawn.


def flip_crop(images: Tensor, random: torch.Generator) -> Tensor:
    """Mirror half of the images, and cut each at random from its 4-pixel reflected border.

    Args:
        images: ``(B, channels, height, width)``.
        random: generator on the CPU.

    Returns:
        Images of the same shape; the order of the batch is kept.
    """
    batch, _, height, width = images.shape
    flips = (torch.rand(batch, generator=random) < 0.5).to(images.device)
    offsets = torch.randint(0, 9, (2, batch, 1), generator=random).to(images.device)
    padded = torch.nn.functional.pad(images, (4, 4, 4, 4), mode="reflect")
    rows = offsets[0] + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device)
    columns = offsets[1] + torch.where(flips[:, None], columns.flip(0), columns)
    index = torch.arange(batch, device=images.device)[:, None, None]
    # Indices around the channel dimension put it last.
    return padded[index, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


AUGMENTATIONS: dict[str, Callable[[Tensor, torch.Generator], Tensor] | None] = {
    "none": None,
    "flip-crop": flip_crop,
}
