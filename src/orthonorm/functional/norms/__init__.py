"""Norms of linear maps, of convolutions above all, and bounds of them that rounding cannot spoil."""

from ._convolution_norms import circular_singular_values as circular_singular_values
from ._convolution_norms import linear_map_norm as linear_map_norm
from ._convolution_norms import zero_padded_bound as zero_padded_bound
