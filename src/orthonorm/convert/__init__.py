"""A whole model converted, trained and turned back: which layers, their options, folding, parameter groups."""

from ._choice import default_filter as default_filter
from ._config import OLMConfig as OLMConfig
from ._config import OrthogonalConfig as OrthogonalConfig
from ._conversion import conversion_plan as conversion_plan
from ._conversion import orthogonalize_ as orthogonalize_
from ._folding import fold as fold
from ._folding import fold_ as fold_
from ._norm_keeping import register_norm_keeping as register_norm_keeping
from ._parameter_groups import param_groups as param_groups
from ._plan import ConversionPlan as ConversionPlan
from ._plan import PlannedWeight as PlannedWeight
from ._renormalize import renormalize_ as renormalize_
