"""The copying problem: symbols to recall after a number of blanks. Generated, so synthetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from .dataset import Dataset, digest_of
from .order import generator

RECALLED, LETTERS = 10, 8
_BLANK, _SIGNAL = LETTERS, LETTERS + 1
TRAIN, TEST = 3_200, 500


def copying(
    folder: Path | None,  # noqa: ARG001 (one signature for the table)
    *,
    blanks: int,
    train: int = TRAIN,
    test: int = TEST,
) -> Dataset:
    """Ten random letters of eight, blanks, a signal; after the signal the letters are to be given back.

    A sequence has ``T + 20`` entries for ``T`` blanks: the letters, ``T - 1`` blanks, the signal, ten blanks. The
    targets are ``T + 10`` blanks and then the letters. Whoever remembers nothing has at best the loss
    ``10 ln 8 / (T + 20)``, the mean over all entries.

    Args:
        folder: nothing is read.
        blanks: ``T``, entries between the last letter and the first that is to be given back.
        train: number of training sequences.
        test: number of test sequences.

    Returns:
        Inputs one-hot, ``(N, T + 20, 10)`` in float32; targets ``(N, T + 20)`` of 9 classes, the last one the blank.

    Examples:
        >>> data = copying(None, blanks=3, train=1, test=1)
        >>> data.train_x.argmax(-1).tolist()
        [[6, 6, 3, 0, 5, 6, 1, 7, 3, 4, 8, 8, 9, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8]]
        >>> data.train_y.tolist()
        [[8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 6, 6, 3, 0, 5, 6, 1, 7, 3, 4]]

    Source: Hochreiter and Schmidhuber 1997, in the form of Arjovsky, Shah and Bengio 2016.
    """
    name = f"copying-{blanks}"
    train_x, train_y = _part(blanks, train, generator(name, "train"))
    test_x, test_y = _part(blanks, test, generator(name, "test"))
    description = (
        f"copying problem (generated): {RECALLED} letters to recall after {blanks} blanks, "
        f"{train:,} sequences to train and {test:,} to test"
    )
    digest = digest_of((train_x, train_y, test_x, test_y))
    return Dataset(name, description, LETTERS + 1, train_x, train_y, test_x, test_y, digest)


def _part(blanks: int, count: int, random: torch.Generator) -> tuple[Tensor, Tensor]:
    letters = torch.randint(0, LETTERS, (count, RECALLED), generator=random)
    inputs = torch.full((count, blanks + 2 * RECALLED), _BLANK)
    targets = inputs.clone()
    inputs[:, :RECALLED] = letters
    inputs[:, RECALLED + blanks - 1] = _SIGNAL
    targets[:, -RECALLED:] = letters
    return torch.nn.functional.one_hot(inputs, LETTERS + 2).float(), targets


COPYING: dict[str, Callable[[Path | None], Dataset]] = {
    f"copying-{blanks}": partial(copying, blanks=blanks) for blanks in (10, 20, 30, 50, 100)
}
