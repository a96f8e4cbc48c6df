"""Models of timm, torchvision and transformers: which layers are their outputs, and how attention is stored."""

from typing import Any

import pytest
import timm
import torch
import transformers
from torch import nn
from torchvision.models import VisionTransformer, squeezenet1_1

import orthonorm as on
from orthogonal_layers import error_of_rows


@pytest.fixture(autouse=True)
def quiet():
    transformers.logging.set_verbosity_error()


def gpt2(**options: Any) -> Any:
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=30, n_positions=8, **ends, **options)


def bert() -> Any:
    make: Any = transformers.BertConfig
    return make(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24)


def left(model: nn.Module) -> dict[str, str]:
    """The Linear and convolution weights that are left, with the reason."""
    kinds = {"Embedding", type(model).__name__}
    return {w.name: w.why for w in on.conversion_plan(model).left if w.layer not in kinds and "Embed" not in w.layer}


OUTPUTS = {
    "timm, Linear": (lambda: timm.create_model("resnet18", num_classes=7), {"fc.weight"}),
    "timm, convolution": (lambda: timm.create_model("resnetv2_50x1_bit", num_classes=7), {"head.fc.weight"}),
    "timm, two heads": (
        lambda: timm.create_model("deit_tiny_distilled_patch16_224", num_classes=7, img_size=32),
        {"head.weight", "head_dist.weight"},
    ),
    "timm, no head": (lambda: timm.create_model("test_vit", num_classes=0), set()),
    "torchvision, convolution": (lambda: squeezenet1_1(num_classes=7), {"classifier.1.weight"}),
    "language model, tied": (lambda: transformers.GPT2LMHeadModel(gpt2()), {"lm_head.weight"}),
    "language model, not tied": (
        lambda: transformers.GPT2LMHeadModel(gpt2(tie_word_embeddings=False)),
        {"lm_head.weight"},
    ),
    "masked language model": (lambda: transformers.BertForMaskedLM(bert()), {"cls.predictions.decoder.weight"}),
    "classifier of texts": (lambda: transformers.BertForSequenceClassification(bert()), {"classifier.weight"}),
}


@pytest.mark.parametrize(("make", "expected"), OUTPUTS.values(), ids=OUTPUTS)
def test_the_output_layers_of_a_known_model_are_left_and_no_other(make: Any, expected: set[str]):
    with torch.device("meta"):
        found = left(make())
    assert set(found) == expected
    assert all("output layer" in reason for reason in found.values())


def test_a_tied_output_layer_and_its_table_stay_one_weight():
    model = transformers.GPT2LMHeadModel(gpt2())
    plan = on.conversion_plan(model)
    assert next(w.tied_to for w in plan.weights if w.name == "lm_head.weight") == "transformer.wte.weight"
    on.orthogonalize_(model)
    assert model.lm_head.weight is model.transformer.wte.weight


def test_weights_stored_inputs_first_are_orthogonal_by_their_outputs():
    model: Any = on.orthogonalize_(transformers.GPT2LMHeadModel(gpt2()).eval(), on.OLMConfig(center=False))
    block = model.transformer.h[0]
    for part in block.attn.c_attn.weight.detach().T.chunk(3):
        assert error_of_rows(part, (16,)) < 1e-5
    assert error_of_rows(block.mlp.c_fc.weight.detach().T, (16, 16, 16, 16)) < 1e-5
    assert error_of_rows(block.mlp.c_proj.weight.detach().T, (16,)) < 1e-5
    ids = torch.arange(6)[None]
    expected = model(ids).logits
    model(ids, labels=ids).loss.backward()
    assert all(p.grad is not None for p in model.parameters())
    plain: Any = transformers.GPT2LMHeadModel(gpt2()).eval()
    plain.load_state_dict(on.fold(model).state_dict())
    torch.testing.assert_close(plain(ids).logits, expected)


def test_one_such_layer_is_converted_on_purpose_by_its_outputs():
    layer: Any = on.orthogonal_weight_norm(transformers.pytorch_utils.Conv1D(8, 24), center=False)
    assert error_of_rows(layer.weight.detach().T, (8,)) < 1e-5


def test_each_projection_of_a_vision_transformer_is_orthogonal():
    theirs: Any = timm.create_model("test_vit", num_classes=7)
    torchs: Any = VisionTransformer(32, 16, 2, 2, 24, 48, num_classes=7)
    config = on.OLMConfig(center=False)
    plan = on.conversion_plan(torchs, config)
    assert {w.name for w in plan.weights if "self_attention" in w.name} <= {w.name for w in plan.converted}
    for model, name, width in (
        (theirs, "blocks.0.attn.qkv.weight", 64),
        (torchs, "encoder.layers.encoder_layer_0.self_attention.in_proj_weight", 24),
    ):
        on.orthogonalize_(model, config)
        path, _, tensor = name.rpartition(".")
        for block in getattr(model.get_submodule(path), tensor).detach().chunk(3):
            assert error_of_rows(block, (width,)) < 1e-5
