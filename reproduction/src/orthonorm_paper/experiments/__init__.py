"""Experiments by name, a file for each table of the paper; a grid is a comprehension."""

from __future__ import annotations

from difflib import get_close_matches

from orthonorm_paper.exceptions import UserError

from . import ablation, cost, imagenet, inception, omdsm, pie, sequences, small, vgg, wrn
from .derived.selection import select as select
from .derived.synthetic import synthetic_of as synthetic_of
from .experiment import Experiment as Experiment

# In the paper's order, then at reduced sizes, then what the paper has not.
_OURS = (
    *omdsm.ENTRIES,
    *pie.ENTRIES,
    *vgg.ENTRIES,
    *inception.ENTRIES,
    *wrn.ENTRIES,
    *cost.ENTRIES,
    *imagenet.ENTRIES,
    *small.ENTRIES,
    *ablation.ENTRIES,
    *sequences.ENTRIES,
)

EXPERIMENTS: dict[str, Experiment] = {entry.name: entry for entry in _OURS}


def experiment(name: str) -> Experiment:
    """Experiment by name, ``NAME-synthetic`` for each at the paper's size among them.

    Raises:
        UserError: an unknown name; it lists the known ones.

    Examples:
        >>> experiment("vgg-synthetic").size
        'synthetic'
    """
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    like = name.removesuffix("-synthetic")
    if like != name and like in EXPERIMENTS:
        return synthetic_of(EXPERIMENTS[like])
    near = get_close_matches(name, EXPERIMENTS, n=1)
    meant = f"Did you mean {near[0]}?" if near else "`orthonorm-paper list` shows what each is."
    raise UserError(f"experiment must be one of {', '.join(EXPERIMENTS)}; got {name!r}. {meant}")
