"""Names of experiments that the command line varies: the base, then what is other."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .run import PRECISIONS

_PRECISION = rf"(-({'|'.join(PRECISIONS)}))?"
_SUFFIX = re.compile(rf"{_PRECISION}(-lr[0-9.e+-]*[0-9](_[0-9.e+-]*[0-9])*)?(-epochs\d+)?(-seeds\d+)?$")
_PRECISION_ALONE = re.compile(rf"{_PRECISION}$")


def variation_name(name: str, rates: Sequence[float], epochs: int | None, seeds: int | None) -> str:
    """Name of an experiment with other learning rates, epochs or number of seeds.

    Examples:
        >>> variation_name("vgg-5k", (0.03, 0.1), 10, None)
        'vgg-5k-lr0.03_0.1-epochs10'
    """
    parts = [name]
    parts += [f"lr{'_'.join(f'{rate:g}' for rate in rates)}"] if rates else []
    parts += [f"epochs{epochs}"] if epochs is not None else []
    parts += [f"seeds{seeds}"] if seeds is not None else []
    return "-".join(parts)


def base_name(name: str) -> str:
    """Name of the experiment that was varied; of another one its own.

    Examples:
        >>> base_name("vgg-5k-lr0.03_0.1-epochs10"), base_name("omdsm-5k"), base_name("demo-bf16-mixed-lr1e-05-seeds5")
        ('vgg-5k', 'omdsm-5k', 'demo')
    """
    return _SUFFIX.sub("", name)


def other_size(name: str) -> bool:
    """Whether learning rates, epochs or seeds of the experiment were varied; the precision alone is no other size.

    Examples:
        >>> other_size("vgg-bf16-mixed"), other_size("vgg-bf16-mixed-epochs10")
        (False, True)
    """
    return _PRECISION_ALONE.sub("", name) != base_name(name)
