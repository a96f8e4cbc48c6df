"""Pure functions on tensors `(..., n, d)`: no module, no state."""

from .inverse_sqrt import inverse_sqrt as inverse_sqrt
from .layout import matrix_layout as matrix_layout
from .operator_norms import circular_singular_values as circular_singular_values
from .operator_norms import linear_map_norm as linear_map_norm
from .operator_norms import zero_padded_bound as zero_padded_bound
from .orthonormalize import orthonormalize as orthonormalize
from .penalties import double_soft_orthogonality as double_soft_orthogonality
from .penalties import soft_orthogonality as soft_orthogonality
from .retractions import retract_cayley as retract_cayley
from .retractions import retract_polar as retract_polar
from .retractions import retract_qr as retract_qr
from .slope_checks import SlopeReport as SlopeReport
from .slope_checks import check_metric as check_metric
from .slope_checks import check_retraction as check_retraction
from .slope_checks import check_tangent as check_tangent
from .stiefel import haar as haar
from .stiefel import inner as inner
from .stiefel import project as project
from .stiefel import project_tangent as project_tangent
from .stiefel import riemannian_gradient as riemannian_gradient
