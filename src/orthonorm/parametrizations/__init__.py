"""Orthogonal weight normalization as a parametrization of a module's tensor."""

from ._options import Options as Options
from ._registration import orthogonal_weight_norm as orthogonal_weight_norm
from ._weight_norm import OrthogonalWeightNorm as OrthogonalWeightNorm
from .caching._cached import cached as cached
from .caching._cached import register_cached as register_cached
