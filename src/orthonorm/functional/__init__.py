"""Pure functions on tensors `(..., n, d)`: no module, no state."""

from ._inverse_sqrt import inverse_sqrt as inverse_sqrt
from ._orthonormalize import orthonormalize as orthonormalize
from ._penalties import double_soft_orthogonality as double_soft_orthogonality
from ._penalties import soft_orthogonality as soft_orthogonality
from .norms import circular_singular_values as circular_singular_values
from .norms import linear_map_norm as linear_map_norm
from .norms import zero_padded_bound as zero_padded_bound
from .stiefel import SlopeReport as SlopeReport
from .stiefel import check_metric as check_metric
from .stiefel import check_retraction as check_retraction
from .stiefel import check_tangent as check_tangent
from .stiefel import haar as haar
from .stiefel import inner as inner
from .stiefel import matrix_layout as matrix_layout
from .stiefel import project as project
from .stiefel import project_tangent as project_tangent
from .stiefel import retract_cayley as retract_cayley
from .stiefel import retract_polar as retract_polar
from .stiefel import retract_qr as retract_qr
from .stiefel import riemannian_gradient as riemannian_gradient
