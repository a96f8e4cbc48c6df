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
    Fault(
        name="recurrent gates are centred",
        file="orthonorm/layer_rules.py",
        old='{"center": False, "group_size": None}',
        new='{"group_size": None}',
        tests=("tests/test_layer_rules.py::test_each_gate_of_a_recurrent_layer_is_orthogonal_by_itself",),
    ),
    Fault(
        name="an LSTM has two gates",
        file="orthonorm/layer_rules.py",
        old="nn.LSTM: 4,",
        new="nn.LSTM: 2,",
        tests=("tests/test_layer_rules.py::test_each_gate_of_a_recurrent_layer_is_orthogonal_by_itself",),
    ),
    Fault(
        name="q, k and v are one block",
        file="orthonorm/layer_rules.py",
        old='Target("in_proj_weight", blocks=3)',
        new='Target("in_proj_weight")',
        tests=("tests/test_layer_rules.py::test_each_projection_of_attention_is_orthogonal_by_itself",),
    ),
    Fault(
        name="the padding row of an embedding is made orthogonal, too",
        file="orthonorm/layer_rules.py",
        old='{"constant_row": module.padding_idx}',
        new="{}",
        tests=("tests/test_layer_rules.py::test_the_padding_row_of_an_embedding_stays_zero_and_gets_no_gradient",),
    ),
    Fault(
        name="a recurrent layer computes with V",
        file="orthonorm/parametrizations/adapters.py",
        old="[getattr(self, name, None) for name in self._flat_weights_names]",
        new='[dict(self.named_parameters()).get(f"parametrizations.{name}.original", getattr(self, name, None)) for name in self._flat_weights_names]',
        tests=("tests/test_layer_rules.py::test_a_recurrent_layer_computes_with_the_orthogonal_weight_as_it_is_now",),
    ),
    Fault(
        name="attention computes its weight at each look",
        file="orthonorm/parametrizations/adapters.py",
        old="    with cached(self):\n        return forward",
        new="    if True:\n        return forward",
        tests=("tests/test_layer_rules.py::test_attention_alone_takes_its_fast_path_and_computes_its_weight_once",),
    ),
    Fault(
        name="reset_parameters of a recurrent layer leaves the scale",
        file="orthonorm/parametrizations/registration.py",
        old="if V._version != version}",
        new="if V._version < version}",
        tests=("tests/test_layer_rules.py::test_reset_parameters_of_a_recurrent_layer_resets_v_and_the_scale",),
    ),
    Fault(
        name="folding changes the order of parameters",
        file="orthonorm/folding.py",
        old="_move_before(module._parameters, name, owner.followers)",
        new="_move_before(module._parameters, name, ())",
        tests=("tests/test_layer_rules.py::test_a_recurrent_layer_survives_copying_converting_and_folding",),
    ),
    Fault(
        name="a change inside cached goes unseen",
        file="orthonorm/parametrizations/cached.py",
        old="elif entry.versions != tuple(map(_version, sources)):",
        new="elif not entry.versions:",
        tests=("tests/test_cached.py::test_a_change_inside_raises_and_names_the_weight",),
    ),
    Fault(
        name="cached hands a weight without a graph to a backward pass",
        file="orthonorm/parametrizations/cached.py",
        old="graph = torch.is_grad_enabled()",
        new="graph = True",
        tests=("tests/test_cached.py::test_a_weight_computed_without_a_graph_is_not_used_where_one_is_needed",),
    ),
    Fault(
        name="a cache lives on in a copied context",
        file="orthonorm/parametrizations/cached.py",
        old="        cache.open = False\n        cache.entries.clear()\n",
        new="        cache.open = True\n",
        tests=("tests/test_cached.py::test_a_context_that_outlives_the_block_sees_no_cache",),
    ),
    Fault(
        name="a strided operator is not scaled",
        file="orthonorm/functional/operator_norms.py",
        old=" / prod(strides) ** 0.5",
        new="",
        tests=("tests/test_operators.py::test_the_spectrum_of_a_circular_convolution",),
    ),
    Fault(
        name="the circle of the zero-padded bound lets windows wrap",
        file="orthonorm/functional/operator_norms.py",
        old="(n + (k - 1) * d)",
        new="(n + 0 * (k - 1) * d)",
        tests=("tests/test_operators.py::test_the_norm_of_a_zero_padded_convolution_lies_between_the_bounds",),
    ),
    Fault(
        name="an operator's convolution groups are one",
        file="orthonorm/functional/operator_norms.py",
        old="unflatten(1, (groups, weight.shape[0] // groups))",
        new="unflatten(1, (1, weight.shape[0]))",
        tests=("tests/test_operators.py::test_the_spectrum_of_a_circular_convolution",),
    ),
    Fault(
        name="power iteration measures its own vector",
        file="orthonorm/functional/operator_norms.py",
        old="best = max(best, float(y.detach().norm()))",
        new="best = float(x.detach().norm())",
        tests=("tests/test_operators.py::test_the_norm_of_a_zero_padded_convolution_lies_between_the_bounds",),
    ),
    Fault(
        name="the hook overlooks a lost direction",
        file="orthonorm/monitoring.py",
        old="_LOST_RANK = 0.5",
        new="_LOST_RANK = 1.5",
        tests=("tests/test_monitoring.py::test_the_layer_that_broke_is_named",),
    ),
    Fault(
        name="a checkpoint may run code",
        file="orthonorm/checkpoints.py",
        old="weights_only=True)\n    except",
        new="weights_only=False)\n    except",
        tests=("tests/test_checkpoints.py::test_wrong_files",),
    ),
    Fault(
        name="gates are one group in a file's table",
        file="orthonorm/checkpoints.py",
        old="blocks=len(tensor) // d)",
        new="blocks=1)",
        tests=("tests/test_checkpoints.py::test_a_converted_models_file_has_the_models_table",),
    ),
)
