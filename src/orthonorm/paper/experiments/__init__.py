"""Experiments by name, a file for each table of the paper; a grid is a comprehension."""

from __future__ import annotations

from orthonorm.nearest_name import nearest_name
from orthonorm.paper.errors import UserError
from orthonorm.paper.experiments import cost, imagenet, inception, pie, recurrent, small, vgg, wrn
from orthonorm.paper.experiments import omdsm as mnist
from orthonorm.paper.experiments.entry import Experiment as Experiment
from orthonorm.paper.experiments.omdsm import BATCHES as BATCHES
from orthonorm.paper.experiments.omdsm import DEPTHS as DEPTHS
from orthonorm.paper.experiments.omdsm import PLAIN as PLAIN
from orthonorm.paper.experiments.omdsm import RATES as RATES
from orthonorm.paper.experiments.omdsm import RIEMANNIAN as RIEMANNIAN
from orthonorm.paper.experiments.omdsm import demo as demo
from orthonorm.paper.experiments.omdsm import omdsm as omdsm
from orthonorm.paper.experiments.omdsm import omdsm_5k as omdsm_5k
from orthonorm.paper.experiments.selecting import select as select
from orthonorm.paper.experiments.synthetic import synthetic_of as synthetic_of

# In the paper's order, then at reduced sizes, then what the paper has not.
_OURS = (
    *mnist.ENTRIES,
    *pie.ENTRIES,
    *vgg.ENTRIES,
    *inception.ENTRIES,
    *wrn.ENTRIES,
    *cost.ENTRIES,
    *imagenet.ENTRIES,
    *small.ENTRIES,
    *recurrent.ENTRIES,
)

EXPERIMENTS: dict[str, Experiment] = {entry.name: entry for entry in _OURS}


def experiment(name: str) -> Experiment:
    """Experiment by name, ``NAME-synthetic`` for each at the paper's size among them.

    Raises:
        UserError: an unknown name; it lists the known ones.

    Example:
        >>> experiment("vgg-synthetic").size
        'synthetic'
    """
    if name in EXPERIMENTS:
        return EXPERIMENTS[name]
    like = name.removesuffix("-synthetic")
    if like != name and like in EXPERIMENTS:
        return synthetic_of(EXPERIMENTS[like])
    near = nearest_name(name, EXPERIMENTS)
    meant = f"; did you mean {near}?" if near else "; `orthonorm list` shows what each is"
    raise UserError(f"experiment is one of {', '.join(EXPERIMENTS)}, got {name!r}{meant}")
