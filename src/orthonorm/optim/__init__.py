"""Optimizers on the Stiefel manifold: weights with orthonormal rows, kept so at every step."""

from ._adam import StiefelAdam as StiefelAdam
from ._landing import Landing as Landing
from ._muon import StiefelMuon as StiefelMuon
from ._sgd import StiefelSGD as StiefelSGD
