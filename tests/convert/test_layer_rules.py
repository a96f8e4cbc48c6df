"""Recurrent, attention, transformer, embedding layers: which tensors become orthogonal, and what computes with them."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

import orthonorm as on
from orthogonal_layers import free
from orthonorm.convert._layer_rules import RULES, find_rule

RECURRENT = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}
CELLS = {nn.LSTMCell: 4, nn.GRUCell: 3, nn.RNNCell: 1}


def everything(module: nn.Module, fqn: str) -> bool:
    return True


def polar(matrix: Tensor) -> Tensor:
    """The orthonormal matrix nearest to a wide or square one, by SVD: an independent source."""
    U, _, Vt = torch.linalg.svd(matrix.double(), full_matrices=False)
    return (U @ Vt).to(matrix.dtype)


def recurrent(kind: Any) -> Any:
    return kind(5, 8, num_layers=2, bidirectional=True)


@pytest.mark.parametrize(("kind", "gates"), RECURRENT.items(), ids=lambda value: getattr(value, "__name__", None))
def test_each_gate_of_a_recurrent_layer_is_orthogonal_by_itself(kind: type[nn.RNNBase], gates: int):
    layer = recurrent(kind)
    expected = {name: torch.cat([polar(gate) for gate in p.chunk(gates)]) for name, p in layer.named_parameters()
                if name.startswith("weight_hh")}  # fmt: skip
    inputs = {name: p.clone() for name, p in layer.named_parameters() if name.startswith("weight_ih")}
    on.orthogonalize_(layer, on.OrthogonalConfig(group_size=3), everything)
    assert set(on.orthogonality_error(layer)) == set(expected)
    for name, weight in expected.items():
        torch.testing.assert_close(getattr(layer, name).detach(), weight, rtol=0, atol=2e-6)
    assert all(torch.equal(getattr(layer, name), weight) for name, weight in inputs.items())


@pytest.mark.parametrize(("kind", "gates"), RECURRENT.items(), ids=lambda value: getattr(value, "__name__", None))
def test_a_recurrent_layer_computes_with_the_orthogonal_weight_as_it_is_now(kind: type[nn.RNNBase], gates: int):
    layer, plain = recurrent(kind), recurrent(kind)
    on.orthogonalize_(layer, None, everything)
    x = torch.randn(6, 3, 5)
    for _ in range(2):
        with torch.no_grad():
            values = {name: getattr(layer, name) for name in plain.state_dict()}
        plain.load_state_dict(values)
        torch.testing.assert_close(layer(x)[0], plain(x)[0])
        with torch.no_grad():
            free(layer, "weight_hh_l1_reverse").normal_()
        layer.flatten_parameters()


@pytest.mark.parametrize("kind", RECURRENT, ids=lambda kind: kind.__name__)
def test_a_recurrent_layers_gradient_reaches_v(kind: type[nn.RNNBase]):
    layer = recurrent(kind).double()
    on.orthogonalize_(layer, on.OrthogonalConfig(scale="row_norms"), everything)
    x = torch.randn(4, 2, 5, dtype=torch.float64)
    V = free(layer, "weight_hh_l0")
    direction = torch.randn_like(V)
    layer(x)[0].square().sum().backward()
    slopes = []
    for sign in (1, -1):
        with torch.no_grad():
            V.add_(sign * 1e-6 * direction)
            slopes.append(float(layer(x)[0].square().sum()))
            V.sub_(sign * 1e-6 * direction)
    assert V.grad is not None
    assert float((V.grad * direction).sum()) == pytest.approx((slopes[0] - slopes[1]) / 2e-6, rel=1e-6, abs=1e-8)


def test_a_recurrent_layer_survives_copying_converting_and_folding():
    layer: Any = on.orthogonalize_(recurrent(nn.LSTM), on.OrthogonalConfig(scale="row_norms"), everything)
    x = torch.randn(6, 3, 5)
    expected = layer(x)[0]
    copied: Any = copy.deepcopy(layer)
    folded: Any = on.fold(layer)
    assert type(folded) is nn.LSTM
    assert list(folded.state_dict()) == list(recurrent(nn.LSTM).state_dict())
    for module in (copied, folded, layer):
        assert torch.equal(module(x)[0], expected)
    with torch.no_grad():
        nn.init.zeros_(folded.get_parameter("weight_hh_l0"))
    assert not torch.equal(folded(x)[0], expected)
    torch.testing.assert_close(layer.double()(x.double())[0], expected.double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("moved", [False, True], ids=["as it was", "given other memory"])
@pytest.mark.parametrize("kind", RECURRENT, ids=lambda kind: kind.__name__)
def test_torchs_removal_leaves_a_recurrent_layer_that_computes_the_same(kind: type[nn.RNNBase], moved: bool):
    layer = on.orthogonalize_(recurrent(kind), on.OrthogonalConfig(scale="row_norms"), everything)
    state = layer.state_dict()
    if moved:
        layer.to_empty(device="cpu").load_state_dict(state)
    x, names = torch.randn(6, 3, 5), list(on.orthogonality_error(layer))
    expected = layer(x)[0]
    for name in names:
        parametrize.remove_parametrizations(layer, name)
        assert torch.equal(layer(x)[0], expected)
    assert type(layer) is kind
    with torch.no_grad():
        nn.init.zeros_(layer.get_parameter("weight_hh_l0"))
    assert not torch.equal(layer(x)[0], expected)
    assert torch.equal(copy.deepcopy(layer)(x)[0], layer(x)[0])
    layer.weight_hh_l0 = nn.Parameter(torch.ones_like(layer.get_parameter("weight_hh_l0")))
    assert layer(x)[0].shape == expected.shape


def test_converting_another_weight_leaves_a_deep_copy_as_it_was():
    # torch gives a module and its deep copy one class, to which each converted weight adds a property.
    layer: Any = on.orthogonalize_(nn.LSTM(5, 4), None, everything)
    clone: Any = copy.deepcopy(layer)
    x, V = torch.randn(6, 3, 5), clone.weight_ih_l0
    expected = clone(x)[0]
    on.orthogonal_weight_norm(layer, "weight_ih_l0", blocks=4)
    assert vars(clone)["_parameters"].get("weight_ih_l0") is V
    assert "weight_ih_l0" not in vars(type(clone))
    assert torch.equal(clone(x)[0], expected)
    on.orthogonal_weight_norm(clone, "weight_ih_l0", blocks=4)
    assert torch.equal(clone(x)[0], layer(x)[0])


def test_a_moved_recurrent_layer_computes_no_weight(monkeypatch: pytest.MonkeyPatch):
    layer, computed = on.orthogonalize_(recurrent(nn.LSTM), None, everything), []
    make = on.OrthogonalWeightNorm.weight_of
    monkeypatch.setattr(
        on.OrthogonalWeightNorm, "weight_of", lambda self, rows, V: computed.append(self.label) or make(self, rows, V)
    )
    layer.double()
    layer.bias_hh_l0 = nn.Parameter(torch.zeros(32, dtype=torch.float64))
    assert computed == []
    layer(torch.randn(6, 3, 5, dtype=torch.float64))
    assert sorted(computed) == sorted(on.orthogonality_error(layer))


def test_attention_goes_on_where_another_parametrization_stays():
    layer: Any = nn.MultiheadAttention(8, 2, kdim=6, vdim=6)
    nn.utils.parametrizations.orthogonal(layer, "k_proj_weight")
    on.orthogonal_weight_norm(layer, "q_proj_weight")
    on.orthogonal_weight_norm(layer, "v_proj_weight")
    inputs = torch.randn(3, 1, 8), torch.randn(3, 1, 6), torch.randn(3, 1, 6)
    expected = layer(*inputs)[0]
    parametrize.remove_parametrizations(layer, "v_proj_weight")
    on.fold_(layer)
    assert [*layer.parametrizations] == ["k_proj_weight"]
    torch.testing.assert_close(layer(*inputs)[0], expected)


def test_reset_parameters_of_a_recurrent_layer_resets_v_and_the_scale():
    layer = recurrent(nn.GRU)
    on.orthogonalize_(layer, on.OrthogonalConfig(scale="row_norms"), everything)
    before = layer.weight_hh_l0.detach().clone()
    layer.reset_parameters()
    V, W = free(layer, "weight_hh_l0").detach(), layer.weight_hh_l0.detach()
    torch.testing.assert_close(W.norm(), V.norm())  # of what was drawn: by row in W, by one number in V
    assert float(W.norm(dim=1).std()) > 0.01
    torch.testing.assert_close(V.norm(dim=1), V.norm(dim=1).mean().expand(24))
    assert not torch.allclose(layer.weight_hh_l0, before)


def test_input_weights_are_taken_when_asked_for():
    layer: Any = on.orthogonalize_(nn.LSTM(12, 5), on.OrthogonalConfig(input_weights=True), everything)
    assert [row.groups for row in on.inspect(layer).layers] == [(5,) * 4] * 2
    assert set(on.orthogonality_error(layer)) == {"weight_ih_l0", "weight_hh_l0"}
    gate = layer.weight_ih_l0[:5]
    torch.testing.assert_close(gate @ gate.mT, torch.eye(5), rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN:UserWarning")
def test_a_projected_lstm_has_several_groups_a_gate():
    layer = on.orthogonalize_(nn.LSTM(6, 8, proj_size=4), None, everything)
    assert on.inspect(layer).layers[0].groups == (4,) * 8
    assert layer(torch.randn(3, 2, 6))[0].shape == (3, 2, 4)


@pytest.mark.parametrize(("kind", "gates"), CELLS.items(), ids=lambda value: getattr(value, "__name__", None))
def test_cells(kind: Any, gates: int):
    cell: Any = on.orthogonalize_(kind(5, 8), None, everything)
    for gate in cell.weight_hh.chunk(gates):
        torch.testing.assert_close(gate @ gate.mT, torch.eye(8), rtol=0, atol=1e-5)
    assert len(cell(torch.randn(3, 5))) in (2, 3)


@pytest.mark.parametrize("widths", [{}, {"kdim": 10, "vdim": 7}], ids=["fused", "unequal"])
def test_each_projection_of_attention_is_orthogonal_by_itself(widths: dict[str, Any]):
    layer = nn.MultiheadAttention(12, 3, batch_first=True, **widths)
    on.orthogonalize_(layer, on.OrthogonalConfig(center=False), everything)
    names = ["q_proj_weight", "k_proj_weight", "v_proj_weight"] if widths else ["in_proj_weight"]
    assert list(on.orthogonality_error(layer)) == [*names, "out_proj.weight"]
    projections = [block for name in names for block in getattr(layer, name).split(12)]
    for block in projections[:1] if widths else projections:
        torch.testing.assert_close(block @ block.mT, torch.eye(12), rtol=0, atol=1e-6)


def test_centred_groups_do_not_straddle_projections():
    layer = on.orthogonalize_(nn.MultiheadAttention(12, 3), on.OrthogonalConfig(center=True), everything)
    assert on.inspect(layer).layers[0].groups == (6,) * 6  # 4 groups of 9, were it one block


def test_heads_are_blocks_when_asked_for():
    layer = on.orthogonalize_(nn.MultiheadAttention(12, 3), on.OrthogonalConfig(center=True, blocks=9), everything)
    assert [row.groups for row in on.inspect(layer).layers] == [(4,) * 9, (6,) * 2]


def test_unequal_blocks_of_grouped_query_attention():
    layer: Any = on.orthogonal_weight_norm(nn.Linear(16, 16 + 4 + 4), center=False, blocks=(16, 4, 4))
    for block in layer.weight.split((16, 4, 4)):
        torch.testing.assert_close(block @ block.mT, torch.eye(len(block)), rtol=0, atol=1e-5)


def transformer() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2)


def test_the_fast_path_of_a_transformer_layer_sees_the_orthogonal_weight(monkeypatch: pytest.MonkeyPatch):
    model = transformer()
    on.orthogonalize_(model, None, lambda module, _: isinstance(module, nn.TransformerEncoderLayer))
    assert len(on.orthogonality_error(model)) == 8
    model.eval()
    calls = []
    native = getattr(torch, "_transformer_encoder_layer_fwd")  # noqa: B009  (torch exports it to nobody)
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *a: calls.append(1) or native(*a))
    x = torch.randn(3, 4, 16)
    mask = torch.tensor([[False] * 4, [False] * 3 + [True], [False] * 2 + [True] * 2])
    for options in ({}, {"src_key_padding_mask": mask}):
        keep = ~mask if options else torch.ones_like(mask)
        slow = model(x, **options)
        with warnings.catch_warnings(), torch.no_grad():
            warnings.filterwarnings("ignore", "The PyTorch API of nested tensors", UserWarning)
            fast = model(x, **options)
        torch.testing.assert_close(fast[keep], slow[keep], rtol=1e-4, atol=1e-5)
    assert len(calls) == 4


def test_attention_alone_takes_its_fast_path_and_computes_its_weight_once(monkeypatch: pytest.MonkeyPatch):
    layer = on.orthogonalize_(nn.MultiheadAttention(12, 2, batch_first=True), None, everything).eval()
    x = torch.randn(2, 5, 12)
    slow = layer(x, x, x)[0]
    native, calls, counts = getattr(torch, "_native_multi_head_attention"), [], []  # noqa: B009
    make = on.OrthogonalWeightNorm.weight_of
    monkeypatch.setattr(torch, "_native_multi_head_attention", lambda *a, **k: calls.append(1) or native(*a, **k))
    monkeypatch.setattr(
        on.OrthogonalWeightNorm, "weight_of", lambda self, rows, V: counts.append(self.label) or make(self, rows, V)
    )
    with torch.no_grad():
        torch.testing.assert_close(layer(x, x, x)[0], slow, rtol=1e-4, atol=1e-5)
    assert calls == [1]
    assert sorted(counts) == ["in_proj_weight", "out_proj.weight"]


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag], ids=lambda kind: kind.__name__)
def test_the_padding_row_of_an_embedding_stays_zero_and_gets_no_gradient(kind: Any):
    table: Any = kind(10, 6, padding_idx=-8)
    with torch.no_grad():
        table.weight[2].zero_()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        on.orthogonalize_(table, on.OrthogonalConfig(scale="row_norms", center=False), everything)
    assert caught == []  # the zero row is no lost direction
    assert on.inspect(table).layers[0].groups == (5, 4)
    V = free(table, "weight")
    optimizer = torch.optim.SGD(table.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        table(torch.tensor([[1, 2, 3, 9]])).square().mul(torch.arange(6)).sum().backward()
        optimizer.step()
        assert V.grad is not None
        assert torch.equal(V.grad[2], torch.zeros(6))
        assert torch.equal(table.weight[2], torch.zeros(6))
        assert float(V.grad[9].abs().max()) > 0
    rows = torch.cat([table.weight[:2], table.weight[3:6]])
    directions = rows / rows.norm(dim=1, keepdim=True)
    torch.testing.assert_close(directions @ directions.mT, torch.eye(5), rtol=0, atol=1e-6)
    on.renormalize_(table)
    assert torch.equal(V[2], torch.zeros(6))
    plain: Any = on.fold(table)
    assert type(plain) is kind
    assert torch.equal(plain.weight, table.weight)
    table.load_state_dict(plain.state_dict())
    torch.testing.assert_close(table.weight.norm(dim=1), plain.weight.norm(dim=1))


def test_the_default_choice_takes_attention_and_leaves_recurrent_and_embedding_layers():
    model = nn.ModuleList(
        [nn.Embedding(9, 6), nn.LSTM(6, 6), nn.Linear(6, 6), nn.MultiheadAttention(6, 2), nn.Linear(6, 3)]
    )
    on.orthogonalize_(model)
    assert list(on.orthogonality_error(model)) == ["2.weight", "3.in_proj_weight", "3.out_proj.weight"]


def test_one_entry_makes_a_type_one_that_is_converted_by_default(monkeypatch: pytest.MonkeyPatch):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 6))

    model = nn.Sequential(Own(), nn.Linear(4, 3))
    assert on.conversion_plan(model).weights[0].decision == "left"
    monkeypatch.setitem(RULES, Own, RULES[nn.Linear])
    on.orthogonalize_(model)
    assert list(on.orthogonality_error(model)) == ["0.weight"]


def test_a_subclass_has_the_rule_of_its_class():
    class MyLSTM(nn.LSTM):
        pass

    assert find_rule(MyLSTM(2, 2)) is RULES[nn.LSTM]
    assert find_rule(nn.ReLU()) is None


class Tied(nn.Module):
    def __init__(self, padding_idx: int | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5, padding_idx=padding_idx)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embedding.weight


def test_a_tied_embedding_stays_tied():
    model: Any = Tied(None)
    on.orthogonalize_(model, on.OrthogonalConfig(scale="row_norms"), lambda module, _: not isinstance(module, Tied))
    assert torch.equal(model.embedding.weight, model.head.weight)
    assert model.embedding.parametrizations.weight[0].scale is model.head.parametrizations.weight[0].scale


REFUSED = [
    pytest.param(nn.Bilinear(3, 3, 3), TypeError, "three ways", id="bilinear"),
    pytest.param(nn.LazyLinear(3), ValueError, "Run one batch", id="lazy linear"),
    pytest.param(nn.LazyConv2d(3, 3), ValueError, "Run one batch", id="lazy convolution"),
    pytest.param(nn.ReLU(), TypeError, "knows Linear", id="no weight at all"),
    pytest.param(nn.Embedding(3, 4, sparse=True), ValueError, "Set sparse=False", id="sparse embedding"),
    pytest.param(nn.EmbeddingBag(3, 4, max_norm=1.0), ValueError, "Set max_norm=None", id="renormalised embedding"),
    pytest.param(nn.GRU(1, 4, dtype=torch.complex64), TypeError, "complex", id="complex gates"),
]


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning")
@pytest.mark.parametrize(("layer", "exception", "message"), REFUSED)
def test_refused_with_the_cure(layer: nn.Module, exception: type[Exception], message: str):
    model = nn.Sequential(nn.Linear(8, 8), layer)
    with pytest.raises(exception, match=message):
        on.orthogonalize_(model, None, lambda module, _: module is not model)
    assert type(model[0]) is nn.Linear


def test_one_tensor_is_not_made_orthogonal_in_two_ways():
    with pytest.raises(ValueError, match=r"head\.weight .*embedding\.weight.*padding row"):
        on.orthogonalize_(Tied(0), None, lambda module, _: not isinstance(module, Tied))


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning")
def test_a_lazy_layer_is_refused_by_name_without_a_filter_too():
    with pytest.raises(ValueError, match=r"0.weight has no shape yet.*Run one batch"):
        on.orthogonalize_(nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 2)))
