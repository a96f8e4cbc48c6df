"""One test a row of the reports that users filed, where a row names whole layers, graphs or operators."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import orthonorm as on


def everything(module: nn.Module, fqn: str) -> bool:
    return True


def projections(layer: Any) -> list[Tensor]:
    """The blocks of a layer that are to be orthogonal by themselves, by torch's documentation of its tensors."""
    if isinstance(layer, nn.LSTM):  # W_hi, W_hf, W_hg, W_ho
        return list(layer.weight_hh_l0.chunk(4))  # type: ignore[operator, union-attr]
    if isinstance(layer, nn.GRU):  # W_hr, W_hz, W_hn
        return list(layer.weight_hh_l0.chunk(3))  # type: ignore[operator, union-attr]
    if isinstance(layer, nn.MultiheadAttention):  # q, k, v
        return list(layer.in_proj_weight.chunk(3))  # type: ignore[operator, union-attr]
    return list(layer.weight.split((16, 4, 4)))


STACKED: dict[str, Callable[[], nn.Module]] = {
    "LSTM": lambda: on.orthogonalize_(nn.LSTM(5, 16), None, everything),
    "GRU": lambda: on.orthogonalize_(nn.GRU(5, 16), None, everything),
    "attention": lambda: on.orthogonalize_(nn.MultiheadAttention(16, 2), on.OLMConfig(center=False), everything),
    "grouped-query": lambda: on.orthogonal_weight_norm(nn.Linear(16, 24), center=False, blocks=(16, 4, 4)),
}


@pytest.mark.parametrize("make", STACKED.values(), ids=STACKED)
def test_case_09_each_gate_or_projection_is_orthogonal_by_itself(make: Callable[[], nn.Module]):
    layer = make()
    for _ in range(2):
        blocks = [block.detach() for block in projections(layer)]
        for block in blocks:
            torch.testing.assert_close(block @ block.mT, torch.eye(len(block)), rtol=0, atol=2e-6)
        # They are not orthogonal to each other: the whole stack is no one group.
        assert float((blocks[0] @ blocks[1].mT).abs().max()) > 0.05
        with torch.no_grad():
            for V in layer.parameters():
                V.normal_()


def test_case_09_the_recurrent_output_follows_v_and_flattening_works():
    layer = on.orthogonalize_(nn.LSTM(5, 8), None, everything)
    assert isinstance(layer, nn.LSTM)
    x = torch.randn(4, 2, 5)
    before = layer(x)[0].detach()
    with torch.no_grad():
        layer.parametrizations.weight_hh_l0.original.normal_()  # type: ignore[union-attr]
    layer.flatten_parameters()
    after = layer(x)[0].detach()
    assert float((after - before).abs().max()) > 1e-3
    torch.testing.assert_close(on.fold(layer)(x)[0].detach(), after)


def network() -> nn.Module:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 12), nn.Tanh(),
        nn.Linear(12, 4),
    )  # fmt: skip
    return on.orthogonalize_(model, on.OLMConfig(group_size=8, scale=True))


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(on.param_groups(model, weight_decay=1e-2), lr=1e-2)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Tensor) -> list[float]:
    losses = []
    for x in batches:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_case_12_a_resumed_run_is_equal_bit_for_bit(tmp_path: Any):
    batches = torch.randn(6, 4, 3, 6, 6)
    model = network()
    optimizer = optimizer_of(model)
    train(model, optimizer, batches[:3])
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "checkpoint.pt")
    expected = train(model, optimizer, batches[3:])

    torch.manual_seed(1)
    resumed = network()
    other = optimizer_of(resumed)
    saved = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    resumed.load_state_dict(saved["model"], strict=True)
    other.load_state_dict(saved["optimizer"])
    assert train(resumed, other, batches[3:]) == expected
    for (name, p), q in zip(model.state_dict().items(), resumed.state_dict().values(), strict=True):
        assert torch.equal(p, q), name
    assert max(on.orthogonality_error(resumed).values()) < 1e-5


# Rows 14 and 16, the graphs: tests/cases/test_export.py.


def test_case_18_an_orthogonal_kernel_is_not_an_orthogonal_operator():
    layer = on.OrthogonalConv2d(8, 16, 3, padding=1)
    rows = layer.weight.flatten(1)  # type: ignore[operator, union-attr]
    torch.testing.assert_close(rows @ rows.mT, torch.eye(16), rtol=0, atol=2e-6)
    row = on.operator_norms(layer, torch.zeros(1, 8, 12, 12))[0]
    assert 1.2 < row.lower <= row.upper <= 3  # at most the root of the 9 windows that see a point
    assert "not the convolution as an" in " ".join((on.OrthogonalConv2d.__doc__ or "").split())


class LargestTensor(TorchDispatchMode):
    """Notes the number of entries of the largest tensor that any operation returns."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple | list) else [result]:
            if isinstance(part, Tensor):
                self.entries = max(self.entries, part.numel())
        return result


def count_in_place(_: Any, a: tuple[int, ...], b: tuple[int, ...], **options: Any) -> int:
    return 2 * a[0] * a[1] * a[2] * b[2]


@pytest.mark.parametrize(("n", "d", "group"), [(30_000, 50, 49), (2048, 2048, 64)], ids=["tall", "square"])
def test_case_19_a_large_weight_makes_no_large_square_and_costs_what_is_stated(n: int, d: int, group: int):
    V = torch.randn(n, d, requires_grad=True)
    in_place = {torch.ops.aten.baddbmm_: count_in_place}
    flop_counter = FlopCounterMode(display=False, custom_mapping=in_place)
    with LargestTensor() as largest, flop_counter as flops:
        W = on.functional.orthonormalize(V, group_size=group)
        W.backward(torch.randn_like(V))
    assert largest.entries == n * d
    # 10 n N_G d for the products with the weight; the rest are products of N_G x N_G matrices.
    stated = 10 * n * group * d
    small = n * group * group * 2 * 16
    assert stated * 0.95 <= flops.get_total_flops() <= stated + small
    rows = W.detach()[:group]
    assert float((rows @ rows.mT - torch.eye(group))[:40, :40].abs().max()) < 1e-5


def test_case_14_deep_copies_of_recurrent_and_attention_layers_are_independent():
    for layer in (nn.LSTM(5, 8), nn.MultiheadAttention(8, 2)):
        on.orthogonalize_(layer, on.OLMConfig(scale=True), everything)
        twin = copy.deepcopy(layer)
        for p, q in zip(layer.parameters(), twin.parameters(), strict=True):
            assert p is not q
            assert torch.equal(p, q)
        plain = on.fold_(copy.deepcopy(layer))
        assert type(plain) in (nn.LSTM, nn.MultiheadAttention)
        assert on.fold_(plain) is plain
        assert list(on.orthogonality_error(layer)) == list(on.orthogonality_error(twin))
