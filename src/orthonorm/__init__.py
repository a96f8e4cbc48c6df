"""Orthogonal weights for any PyTorch network, with exact gradients.

Convert a model, train it with any optimizer, and turn it back into a plain model:

    model = orthogonalize_(model)
    optimizer = torch.optim.SGD(param_groups(model), lr=0.1)
    ...
    plain = fold(model)

- Whole models: `conversion_plan`, `orthogonalize_` with `OrthogonalConfig` or `OLMConfig`, `fold`, `fold_`,
  `param_groups`, `renormalize_`, `register_norm_keeping`, `default_filter`.
- Single weights and layers: `orthogonal_weight_norm`, `OrthogonalLinear`, `OrthogonalConv1d`, `OrthogonalConv2d`,
  `OrthogonalConv3d` and the transposed ones; `cached` and `register_cached` compute a weight once a step.
- Optimizers on the Stiefel manifold: `StiefelSGD`, `StiefelAdam`, `StiefelMuon`, `Landing`.
- What a model is like: `inspect`, `inspect_file`, `orthogonality_error`, `operator_norms`, `signal_propagation`,
  `weight_metrics`, `weight_problems`, `OrthogonalityHook`.
- Lipschitz networks: `lipschitz_bound`, `certified_accuracy`, `MaxMin`.
- Functions of tensors: the module `functional`, with `functional.orthonormalize`.

`help(orthonorm.orthogonalize_)` and so on explain each one.
"""

from . import functional as functional
from ._max_min import MaxMin as MaxMin
from .convert import ConversionPlan as ConversionPlan
from .convert import OLMConfig as OLMConfig
from .convert import OrthogonalConfig as OrthogonalConfig
from .convert import PlannedWeight as PlannedWeight
from .convert import conversion_plan as conversion_plan
from .convert import default_filter as default_filter
from .convert import fold as fold
from .convert import fold_ as fold_
from .convert import orthogonalize_ as orthogonalize_
from .convert import param_groups as param_groups
from .convert import register_norm_keeping as register_norm_keeping
from .convert import renormalize_ as renormalize_
from .diagnostics import Inspection as Inspection
from .diagnostics import LayerBound as LayerBound
from .diagnostics import LayerOperator as LayerOperator
from .diagnostics import LayerReport as LayerReport
from .diagnostics import LayerSignal as LayerSignal
from .diagnostics import LipschitzBound as LipschitzBound
from .diagnostics import OrthogonalityHook as OrthogonalityHook
from .diagnostics import OrthogonalityWarning as OrthogonalityWarning
from .diagnostics import SignalPropagation as SignalPropagation
from .diagnostics import certified_accuracy as certified_accuracy
from .diagnostics import inspect as inspect
from .diagnostics import inspect_file as inspect_file
from .diagnostics import lipschitz_bound as lipschitz_bound
from .diagnostics import operator_norms as operator_norms
from .diagnostics import orthogonality_error as orthogonality_error
from .diagnostics import signal_propagation as signal_propagation
from .diagnostics import weight_metrics as weight_metrics
from .diagnostics import weight_problems as weight_problems
from .layers import OrthogonalConv1d as OrthogonalConv1d
from .layers import OrthogonalConv2d as OrthogonalConv2d
from .layers import OrthogonalConv3d as OrthogonalConv3d
from .layers import OrthogonalConvTranspose1d as OrthogonalConvTranspose1d
from .layers import OrthogonalConvTranspose2d as OrthogonalConvTranspose2d
from .layers import OrthogonalConvTranspose3d as OrthogonalConvTranspose3d
from .layers import OrthogonalLinear as OrthogonalLinear
from .optim import Landing as Landing
from .optim import StiefelAdam as StiefelAdam
from .optim import StiefelMuon as StiefelMuon
from .optim import StiefelSGD as StiefelSGD
from .parametrizations import OrthogonalWeightNorm as OrthogonalWeightNorm
from .parametrizations import cached as cached
from .parametrizations import orthogonal_weight_norm as orthogonal_weight_norm
from .parametrizations import register_cached as register_cached

__version__ = "0.1.0"
