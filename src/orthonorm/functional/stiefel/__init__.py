"""The Stiefel manifold of matrices with orthonormal rows: metrics, projections, retractions, and checks of them."""

from ._layout import matrix_layout as matrix_layout
from ._manifold import haar as haar
from ._manifold import inner as inner
from ._manifold import project as project
from ._manifold import project_tangent as project_tangent
from ._manifold import riemannian_gradient as riemannian_gradient
from ._retractions import retract_cayley as retract_cayley
from ._retractions import retract_polar as retract_polar
from ._retractions import retract_qr as retract_qr
from ._slope_checks import SlopeReport as SlopeReport
from ._slope_checks import check_metric as check_metric
from ._slope_checks import check_retraction as check_retraction
from ._slope_checks import check_tangent as check_tangent
