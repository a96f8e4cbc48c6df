"""Every loader gives the weights of a file, plain or converted, or ends in an error whose cure does."""

import re
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, PreTrainedConfig

import orthonorm as on
from loaders.networks import ConvertedOfTransformers, OfTransformers, X, nearest, trained
from loaders.page import PAGE, with_table
from loaders.rows import CURES, LOADERS, Loader
from orthogonal_layers import polar

EVERY = pytest.mark.parametrize("loader", LOADERS, ids=lambda loader: re.sub(r"\W+", "-", loader.call).strip("-"))


@pytest.fixture(autouse=True)
def their_warnings() -> Iterator[None]:
    """The loaders warn of what is theirs: no process group, memory that a class leaves without values."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def same(model: Any, expected: Any) -> None:
    torch.testing.assert_close(model.eval()(X), expected.eval()(X), rtol=0, atol=1e-5)


@EVERY
def test_a_converted_file(loader: Loader, tmp_path: Any):
    source = trained(loader.source(converted=True))
    model = loader.load(source, str(tmp_path))
    same(model, source)


@EVERY
def test_a_plain_file(loader: Loader, tmp_path: Any):
    source = trained(loader.source(converted=False))
    if loader.raised:
        kind, text = loader.raised
        with pytest.raises(kind, match=rf"(?s){text}"):
            loader.load(source, str(tmp_path))(X)
        return
    model: Any = loader.load(source, str(tmp_path))
    if loader.ignored:
        expected: Any = nearest(source)
        assert not torch.allclose(model.a.weight, expected.a.weight, atol=0.01)
        assert torch.equal(model.head.weight, expected.head.weight)
    else:
        same(model, nearest(source))
        same(on.fold(model), nearest(source))


@pytest.mark.parametrize("loader", [loader for loader in LOADERS if loader.cure], ids=lambda loader: loader.call)
def test_the_cure(loader: Loader, tmp_path: Any):
    source = trained(loader.source(converted=False))
    model = CURES[loader.cure][1](loader, source, str(tmp_path))
    same(model, nearest(source))


def test_what_has_no_cure_needs_none():
    assert all(bool(loader.cure) == bool(loader.raised or loader.ignored) for loader in LOADERS)


TINY = BertConfig(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, vocab_size=11, type_vocab_size=1
)


class ConvertedBert(BertForSequenceClassification):
    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        on.orthogonalize_(self)


OPTIONS: dict[str, dict[str, Any]] = {
    "sharded": {"save": {"max_shard_size": "0.2KB"}},
    "device_map": {"device_map": "cpu"},
    "bfloat16": {"dtype": torch.bfloat16},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_transformers_with_options(options: dict[str, Any], tmp_path: Any):
    plain, converted = trained(OfTransformers(PreTrainedConfig())), trained(ConvertedOfTransformers(PreTrainedConfig()))
    load = {key: value for key, value in options.items() if key != "save"}
    for name, source in (("plain", plain), ("converted", converted)):
        source.save_pretrained(tmp_path / name, **options.get("save", {}))
        assert (len(list((tmp_path / name).glob("*.safetensors"))) > 1) == ("save" in options)
    model = ConvertedOfTransformers.from_pretrained(tmp_path / "converted", **load)
    same(model, converted.to(model.dtype))
    with pytest.raises(ValueError, match=r"a\.weight was made on the meta device"):
        ConvertedOfTransformers.from_pretrained(tmp_path / "plain", **load)(X)


def test_case_27_a_model_of_transformers_that_converts_refuses_a_plain_file(tmp_path: Any):
    BertForSequenceClassification(TINY).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"bert\.encoder\.layer\.0.*\.weight .*meta"):
        ConvertedBert.from_pretrained(tmp_path)(torch.zeros(1, 3, dtype=torch.long))
    plain = trained(BertForSequenceClassification.from_pretrained(tmp_path))
    model: Any = ConvertedBert(TINY)
    model.load_state_dict(plain.state_dict())
    module = "bert.encoder.layer.1.output.dense"
    expected = polar(plain.get_submodule(module).weight, center=False)
    torch.testing.assert_close(model.get_submodule(module).weight.double(), expected, rtol=0, atol=1e-6)


def test_the_page_has_the_table():
    page = PAGE.read_text()
    assert with_table(page) == page
