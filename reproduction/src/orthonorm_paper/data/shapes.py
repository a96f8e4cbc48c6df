"""Shapes of the images and numbers of classes, known before any file is read."""

from __future__ import annotations

Shape = tuple[tuple[int, int, int], int]

_GREY, _COLOUR = (1, 32, 32), (3, 32, 32)

SHAPES: dict[str, Shape] = {
    "mnist": (_GREY, 10),
    "mnist-5k": (_GREY, 10),
    "mnist-5k-rgb": (_COLOUR, 10),
    "pie": (_GREY, 68),
    "cifar10": (_COLOUR, 10),
    "cifar100": (_COLOUR, 100),
    "cifar100-own": (_COLOUR, 100),
    "imagenet": ((3, 224, 224), 1_000),
    "imagenet-colour": ((3, 224, 224), 1_000),
}


def shape_of(dataset: str) -> Shape:
    """``(channels, height, width)`` and number of classes of a data set, its splits and its synthetic likeness.

    Examples:
        >>> shape_of("pie-tune"), shape_of("cifar100-synthetic")
        (((1, 32, 32), 68), ((3, 32, 32), 100))
    """
    return SHAPES[dataset.removesuffix("-synthetic").removesuffix("-tune")]
