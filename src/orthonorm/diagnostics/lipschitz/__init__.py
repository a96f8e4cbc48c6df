"""A bound of a network's Lipschitz constant, module by module, and what it certifies."""

from ._bound import LayerBound as LayerBound
from ._bound import LipschitzBound as LipschitzBound
from ._bound import lipschitz_bound as lipschitz_bound
from ._certified_accuracy import certified_accuracy as certified_accuracy
