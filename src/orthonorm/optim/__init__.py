"""Optimizers on the Stiefel manifold: weights with orthonormal rows, kept so at every step."""

from ._adam import StiefelAdam as StiefelAdam
from ._sgd import StiefelSGD as StiefelSGD
