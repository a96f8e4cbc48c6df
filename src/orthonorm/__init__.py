"""Orthogonal weights for any PyTorch network, with exact gradients."""

from . import functional as functional
from .checkpoints import inspect_file as inspect_file
from .convert import OLMConfig as OLMConfig
from .convert import default_filter as default_filter
from .convert import orthogonalize_ as orthogonalize_
from .diagnostics import Inspection as Inspection
from .diagnostics import LayerReport as LayerReport
from .diagnostics import inspect as inspect
from .diagnostics import orthogonality_error as orthogonality_error
from .folding import fold as fold
from .folding import fold_ as fold_
from .free_matrices import param_groups as param_groups
from .free_matrices import recenter_ as recenter_
from .modules import OrthogonalConv1d as OrthogonalConv1d
from .modules import OrthogonalConv2d as OrthogonalConv2d
from .modules import OrthogonalConv3d as OrthogonalConv3d
from .modules import OrthogonalConvTranspose1d as OrthogonalConvTranspose1d
from .modules import OrthogonalConvTranspose2d as OrthogonalConvTranspose2d
from .modules import OrthogonalConvTranspose3d as OrthogonalConvTranspose3d
from .modules import OrthogonalLinear as OrthogonalLinear
from .monitoring import OrthogonalityHook as OrthogonalityHook
from .monitoring import OrthogonalityWarning as OrthogonalityWarning
from .monitoring import weight_metrics as weight_metrics
from .monitoring import weight_problems as weight_problems
from .operators import LayerOperator as LayerOperator
from .operators import chain_norm as chain_norm
from .operators import operator_norms as operator_norms
from .optim import StiefelAdam as StiefelAdam
from .optim import StiefelSGD as StiefelSGD
from .parametrizations import OrthogonalWeightNorm as OrthogonalWeightNorm
from .parametrizations import cached as cached
from .parametrizations import orthogonal_weight_norm as orthogonal_weight_norm
from .parametrizations import register_cached as register_cached
from .propagation import LayerSignal as LayerSignal
from .propagation import signal_propagation as signal_propagation

__version__ = "0.1.0"
