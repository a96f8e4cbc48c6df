"""Mixtures of experts of transformers, which keep the experts of a layer in one parameter (E, out, in)."""

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

import orthonorm as on
from orthogonal_layers import error_of_rows


@pytest.fixture(autouse=True)
def quiet():
    transformers.logging.set_verbosity_error()


SIZES: dict[str, Any] = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 32,
}


def mixtral(implementation: str = "eager") -> Any:
    make: Any = transformers.MixtralConfig
    config = make(**SIZES, intermediate_size=8, num_local_experts=4)
    config._experts_implementation = implementation
    return transformers.MixtralForCausalLM(config)


def qwen() -> Any:
    make: Any = transformers.Qwen3MoeConfig
    config = make(**SIZES, moe_intermediate_size=8, num_experts=4, decoder_sparse_step=1, mlp_only_layers=[])
    return transformers.Qwen3MoeForCausalLM(config)


def gpt_oss() -> Any:
    make: Any = transformers.GptOssConfig
    config = make(**SIZES, intermediate_size=8, num_local_experts=4, sliding_window=8)
    return transformers.GptOssForCausalLM(config)


def experts_of(model: Any) -> Any:
    return model.model.layers[0].mlp.experts


def with_experts(model: Any) -> Any:
    usual = on.default_filter(model)
    return on.orthogonalize_(model, filter_fn=lambda module, name: usual(module, name) or name.endswith(".experts"))


@pytest.mark.parametrize("make", [mixtral, qwen, gpt_oss])
def test_by_default_experts_are_left_and_the_plan_says_how_they_are_taken(make: Any):
    model = make()
    rows = {w.name.rpartition(".")[2]: w for w in on.conversion_plan(model).weights if ".experts." in w.name}
    for name in ("gate_up_proj", "down_proj"):
        assert rows[name].decision == "left"
        assert "filter_fn" in rows[name].why
    before = experts_of(on.orthogonalize_(model)).down_proj
    assert before is experts_of(model)._parameters["down_proj"]


@pytest.mark.parametrize("make", [mixtral, qwen])
def test_case_29_a_filter_takes_each_expert_by_itself_gate_and_up_apart(make: Any):
    model = make()
    before = {key: value.shape for key, value in model.state_dict().items()}
    experts = experts_of(with_experts(model))
    for expert in experts.gate_up_proj.detach():
        for half in expert.chunk(2):
            assert error_of_rows(half, (8,)) < 1e-5
    groups = {row.weight.rpartition(".")[2]: row.groups for row in on.inspect(model).layers}
    assert groups["gate_up_proj"] == (8, 8) * 4  # not one group of 16
    for expert in experts.down_proj.detach():  # 16 rows of length 8
        assert error_of_rows(expert, (8, 8)) < 1e-5
    assert {key: value.shape for key, value in on.fold(model).state_dict().items()} == before


@pytest.mark.parametrize("implementation", ["eager", "batched_mm", "grouped_mm"])
def test_a_mixture_trains_and_folds_in_each_way_that_transformers_runs_it(implementation: str):
    model = with_experts(mixtral(implementation))
    tokens = torch.arange(12).view(1, -1)
    optimizer = torch.optim.Adam(on.param_groups(model), lr=1e-2)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert max(on.orthogonality_error(model).values()) < 1e-5
    model.eval()
    torch.testing.assert_close(on.fold(model)(tokens).logits, model(tokens).logits)


def test_experts_stored_with_their_inputs_first_are_read_by_their_outputs():
    model = gpt_oss()
    experts: Any = on.orthogonal_weight_norm(experts_of(model), "down_proj", stacked=True)
    down: Tensor = experts.down_proj.detach()
    assert down.shape == (4, 8, 16)
    for expert in down:
        outputs = torch.eye(8) @ expert  # what each input gives: (in, out)
        assert error_of_rows(outputs.T, (8, 8)) < 1e-5


def test_rows_of_gate_and_up_in_turns_are_refused_with_the_cure():
    model = gpt_oss()
    plan = on.conversion_plan(model, None, lambda _, name: name.endswith(".experts"))
    assert [row.name for row in plan.refused] == ["model.layers.0.mlp.experts"]
    with pytest.raises(TypeError, match=r"is_concatenated=False.*orthogonal_weight_norm.*down_proj.*stacked=True"):
        on.orthogonalize_(model, filter_fn=lambda _, name: name.endswith(".experts"))


def test_the_experts_of_a_file_are_read_each_by_itself(tmp_path: Any):
    model = with_experts(mixtral())
    expected = on.inspect(model)
    from safetensors.torch import save_file

    save_file(model.state_dict(), tmp_path / "model.safetensors")
    torch.save(model.state_dict(), tmp_path / "model.pt")
    for name in ("model.safetensors", "model.pt"):
        found = {row.weight: row for row in on.inspect_file(tmp_path / name).layers}
        for row in expected.layers:
            if ".experts." in row.weight:
                assert found[row.weight].groups == row.groups
                assert found[row.weight].error < 1e-5
