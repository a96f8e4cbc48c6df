"""What a model's orthogonal weights are like, what its layers do as operators, and whether training keeps them well."""

from ._files import inspect_file as inspect_file
from ._health import OrthogonalityHook as OrthogonalityHook
from ._health import OrthogonalityWarning as OrthogonalityWarning
from ._health import weight_metrics as weight_metrics
from ._health import weight_problems as weight_problems
from ._inspection import Inspection as Inspection
from ._inspection import LayerReport as LayerReport
from ._inspection import inspect as inspect
from ._inspection import orthogonality_error as orthogonality_error
from ._operator_norms import LayerOperator as LayerOperator
from ._operator_norms import operator_norms as operator_norms
from ._signal_propagation import LayerSignal as LayerSignal
from ._signal_propagation import SignalPropagation as SignalPropagation
from ._signal_propagation import signal_propagation as signal_propagation
from .lipschitz import LayerBound as LayerBound
from .lipschitz import LipschitzBound as LipschitzBound
from .lipschitz import certified_accuracy as certified_accuracy
from .lipschitz import lipschitz_bound as lipschitz_bound
