"""A data set small enough that a run takes a fraction of a second."""

import torch

from orthonorm_paper.data import Dataset


def synthetic(_: object) -> Dataset:
    """Four classes of noisy 8 x 8 patterns: synthetic, and learned in a few steps."""
    random = torch.Generator().manual_seed(1)
    patterns = torch.randn(4, 1, 8, 8, generator=random)
    labels = torch.arange(76) % 4
    images = patterns[labels] + 0.5 * torch.randn(76, 1, 8, 8, generator=random)
    return Dataset(
        name="tiny",
        description="synthetic patterns",
        classes=4,
        train_x=images[:60],
        train_y=labels[:60],
        test_x=images[60:],
        test_y=labels[60:],
        digest="tiny",
    )
