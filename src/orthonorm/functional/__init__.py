"""Pure functions on tensors `(..., n, d)`: no module, no state."""

from .inverse_sqrt import inverse_sqrt as inverse_sqrt
from .orthonormalize import orthonormalize as orthonormalize
