"""What the networks ask of their arguments, and what they say to a wrong one."""

from __future__ import annotations

from orthonorm_paper.exceptions import UserError


def check_image(shape: tuple[int, ...], network: str, *, side: int | None = None, least: int = 1) -> int:
    """Channels of one image of a shape that the network takes.

    Args:
        shape: ``(channels, height, width)``.
        network: its name in the message.
        side: height and width there must be; None for any.
        least: smallest height and width.

    Raises:
        UserError: not three sizes, or another side.

    Examples:
        >>> check_image((3, 32, 32), "vgg", side=32)
        3
    """
    if len(shape) != 3 or shape[0] < 1:
        raise UserError(f"{network} takes images of (channels, height, width); got the shape {shape}.")
    channels, height, width = shape
    if side is not None and (height, width) != (side, side):
        raise UserError(
            f"{network} takes images of {side} x {side}; got {height} x {width}. Choose a data set of that size."
        )
    if min(height, width) < least:
        raise UserError(f"{network} takes images of at least {least} x {least}; got {height} x {width}.")
    return channels


def check_probability(name: str, value: int | float) -> None:
    """A ``UserError`` unless ``0 <= value < 1``."""
    if not 0 <= value < 1:
        raise UserError(f"{name} must be a probability in [0, 1); got {value!r}.")


def narrowed(channels: int, width: int | float) -> int:
    """Channels of a layer at a fraction of the paper's width, at least 1.

    Examples:
        >>> narrowed(96, 0.25), narrowed(64, 1)
        (24, 64)
    """
    if not 0 < width <= 64:
        raise UserError(f"width must be a factor of the paper's widths, in (0, 64]; got {width!r}.")
    return max(1, round(channels * width))
