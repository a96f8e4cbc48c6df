"""Optimizers on the Stiefel manifold: weights with orthonormal rows, kept so at every step."""

from .adam import StiefelAdam as StiefelAdam
from .sgd import StiefelSGD as StiefelSGD
