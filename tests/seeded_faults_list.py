"""The faults that the suite must notice, each with the test that notices it.

To add one: a name that says what is broken, the file under src/, a text that occurs there exactly
once, what it becomes, and the node ids of the tests that must fail an assertion because of it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One text of one file replaced by another, and the tests named to fail because of it."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="the version is not the one that was released",
        file="orthonorm/__init__.py",
        old='__version__ = "0.1.0"',
        new='__version__ = "0.0.0"',
        tests=("tests/test_version.py::test_the_version_is_the_packages",),
    ),
    Fault(
        name="the diagnostic returns zero",
        file="orthonorm/diagnostics.py",
        old="return float(group_errors(owner.orthonormal_rows(V), owner.sizes).amax())",
        new="return 0.0 * float(group_errors(owner.orthonormal_rows(V), owner.sizes).amax())",
        tests=("tests/test_diagnostics.py::test_the_error_is_the_known_one",),
    ),
    Fault(
        name="the diagnostic looks at the best group",
        file="orthonorm/diagnostics.py",
        old="owner.sizes).amax())",
        new="owner.sizes).amin())",
        tests=("tests/test_diagnostics.py::test_the_error_is_the_worst_groups_wherever_that_is",),
    ),
    Fault(
        name="the condition hides a group that is not finite",
        file="orthonorm/diagnostics.py",
        old="float(torch.tensor([1.0, *conditions], dtype=torch.float64).amax())",
        new="max(conditions, default=1.0)",
        tests=("tests/test_diagnostics.py::test_an_ill_group_does_not_hide_one_that_is_not_finite",),
    ),
    Fault(
        name="the condition is of V before centring",
        file="orthonorm/diagnostics.py",
        old="centred = rows - rows.mean(-1, keepdim=True) if owner.center else rows",
        new="centred = rows",
        tests=("tests/test_diagnostics.py::test_condition_and_norm_are_numpys",),
    ),
    Fault(
        name="a transposed convolution is taken for a plain one",
        file="orthonorm/parametrizations/registration.py",
        old="return module.groups, module.transposed",
        new="return module.groups, False",
        tests=("tests/test_cases.py::test_case_07_the_rows_of_a_transposed_convolution_are_its_output_filters",),
    ),
    Fault(
        name="groups straddle a convolution's own groups",
        file="orthonorm/parametrizations/registration.py",
        old="return module.groups, module.transposed",
        new="return 1, module.transposed",
        tests=("tests/test_cases.py::test_case_08_groups_stay_inside_a_convolutions_own_groups",),
    ),
    Fault(
        name="the scale is squared",
        file="orthonorm/parametrizations/weight_norm.py",
        old="rows = rows * self.scale.view(*rows.shape[:-1], 1)",
        new="rows = rows * self.scale.view(*rows.shape[:-1], 1) ** 2",
        tests=("tests/test_parametrizations.py::test_a_learned_scale_starts_at_the_row_norms_and_learns",),
    ),
    Fault(
        name="a learned scale starts at one",
        file="orthonorm/parametrizations/weight_norm.py",
        old="self.scale.copy_(rows.norm(dim=-1).flatten())",
        new="self.scale.fill_(1.0)",
        tests=("tests/test_cases.py::test_case_10_a_pretrained_weight_is_not_thrown_away",),
    ),
    Fault(
        name="an assigned tensor shares its memory with V",
        file="orthonorm/parametrizations/weight_norm.py",
        old="own = weight if isinstance(weight, nn.Parameter) else weight.clone()",
        new="own = weight",
        tests=("tests/test_parametrizations.py::test_training_leaves_an_assigned_tensor_alone",),
    ),
    Fault(
        name="groups straddle blocks",
        file="orthonorm/parametrizations/weight_norm.py",
        old="for block in _block_sizes(n, blocks, groups)",
        new="for block in (sum(_block_sizes(n, blocks, groups)),)",
        tests=("tests/test_parametrizations.py::test_groups_do_not_straddle_blocks",),
    ),
    Fault(
        name="a deficient weight is not completed",
        file="orthonorm/parametrizations/weight_norm.py",
        old="        if lost == 0:\n",
        new="        if lost >= 0:\n",
        tests=("tests/test_parametrizations.py::test_a_deficient_weight_is_completed_with_a_warning",),
    ),
    Fault(
        name="a plain checkpoint leaves the scale as it is",
        file="orthonorm/parametrizations/registration.py",
        old="scale = rows.norm(dim=-1).flatten()",
        new="scale = owner.scale",
        tests=("tests/test_parametrizations.py::test_a_plain_checkpoint_loads[True-False]",),
    ),
    Fault(
        name="a converted layer resets nothing",
        file="orthonorm/parametrizations/registration.py",
        old="    for name, weight in written.items():\n",
        new="    for name, weight in [*written.items()][:0]:\n",
        tests=("tests/test_modules.py::test_reset_parameters_draws_torchs_start_anew",),
    ),
    Fault(
        name="the scale of our layers starts at the row norms",
        file="orthonorm/modules.py",
        old="owner.unit_start = True\n    if isinstance(owner.scale, Tensor):\n        nn.init.ones_(owner.scale)",
        new="owner.unit_start = True",
        tests=("tests/test_modules.py::test_a_start_is_torchs_start_made_orthonormal",),
    ),
    Fault(
        name="tied layers keep a scale each",
        file="orthonorm/convert.py",
        old="parametrization.scale = scales.setdefault(key, parametrization.scale)",
        new="scales[key] = parametrization.scale",
        tests=("tests/test_convert.py::test_tied_weights_stay_tied_with_one_scale",),
    ),
    Fault(
        name="one of two tied layers is converted alone",
        file="orthonorm/convert.py",
        old="    _check_shared_weights(model, [module for module, _ in plans])\n",
        new="",
        tests=("tests/test_convert.py::test_a_refusal_says_why_and_changes_nothing[one of two that share]",),
    ),
    Fault(
        name="the classifier is converted",
        file="orthonorm/convert.py",
        old=" or module is last:",
        new=":",
        tests=("tests/test_convert.py::test_the_default_filter_leaves_out_depthwise_small_and_the_classifier",),
    ),
    Fault(
        name="a depthwise convolution is converted",
        file="orthonorm/convert.py",
        old="1 < module.groups == module.in_channels",
        new="1 < 0",
        tests=("tests/test_convert.py::test_the_default_filter_leaves_out_depthwise_small_and_the_classifier",),
    ),
    Fault(
        name="the group size of a config is not cut",
        file="orthonorm/convert.py",
        old="self.group_size and min(self.group_size, max(1, row_limit(d, self.center)))",
        new="self.group_size and max(1, min(self.group_size, 3))",
        tests=("tests/test_convert.py::test_the_group_size_of_a_config_is_cut_to_each_layers_limit",),
    ),
    Fault(
        name="folding keeps V",
        file="orthonorm/folding.py",
        old="        original.copy_(value)\n",
        new="        original.copy_(original)\n",
        tests=("tests/test_folding.py::test_a_folded_layer_is_torchs_and_computes_the_same",),
    ),
    Fault(
        name="folding a copy breaks the original",
        file="orthonorm/folding.py",
        old="    _set_class(module, type(cls.__name__, cls.__bases__, dict(cls.__dict__)))\n",
        new="",
        tests=("tests/test_folding.py::test_folding_one_of_two_deep_copies_leaves_the_other_working",),
    ),
    Fault(
        name="a folded layer keeps our class",
        file="orthonorm/folding.py",
        old="        _set_class(module, _plain_class(type(module)))\n",
        new="",
        tests=("tests/test_folding.py::test_a_folded_layer_is_torchs_and_computes_the_same",),
    ),
    Fault(
        name="recentering leaves the norm",
        file="orthonorm/free_matrices.py",
        old="V.copy_(norm * from_rows(",
        new="V.copy_(from_rows(",
        tests=("tests/test_free_matrices.py::test_recentering_keeps_the_function_and_sets_the_norms",),
    ),
    Fault(
        name="decay reaches V",
        file="orthonorm/free_matrices.py",
        old='if id(p) in free], "weight_decay": 0.0}',
        new='if id(p) in free], "weight_decay": weight_decay}',
        tests=("tests/test_free_matrices.py::test_param_groups_keep_decay_off_v",),
    ),
    Fault(
        name="the gradient ratio is turned over",
        file="orthonorm/propagation.py",
        old="ratio = float(at_input.norm() / at_output.norm())",
        new="ratio = float(at_output.norm() / at_input.norm())",
        tests=("tests/test_propagation.py::test_every_number_is_the_one_computed_by_hand",),
    ),
    Fault(
        name="the bias counts as signal",
        file="orthonorm/propagation.py",
        old="unbiased = rows - module.bias.detach() if isinstance(module.bias, Tensor) else rows",
        new="unbiased = rows",
        tests=("tests/test_propagation.py::test_every_number_is_the_one_computed_by_hand",),
    ),
    Fault(
        name="an in-place activation changes what was recorded",
        file="orthonorm/propagation.py",
        old="        return s.clone()\n",
        new="        return s\n",
        tests=("tests/test_propagation.py::test_every_number_is_the_one_computed_by_hand",),
    ),
)
