"""Orthogonal weight normalization as a parametrization of a module's tensor."""

from .cached import cached as cached
from .cached import register_cached as register_cached
from .registration import orthogonal_weight_norm as orthogonal_weight_norm
from .weight_norm import OrthogonalWeightNorm as OrthogonalWeightNorm
