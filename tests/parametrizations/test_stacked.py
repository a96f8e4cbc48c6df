"""A parameter (E, n, d) with `stacked=True` is E matrices, each orthogonal by itself, wherever the weight goes."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import oracle
import orthonorm as on
from orthogonal_layers import error_of_rows, free, map_of, polar

E, N, D = 4, 6, 8


class Experts(nn.Module):
    """A mixture of experts that keeps their matrices in one parameter, and reads it once an expert."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(shape or (E, N, D)))

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([nn.functional.linear(x, self.up[i]) for i in range(len(self.up))])


def converted(*shape: int, dtype: torch.dtype = torch.float64, **options: Any) -> Any:
    return on.orthogonal_weight_norm(Experts(*shape).to(dtype), "up", stacked=True, **options)


def test_case_29_each_matrix_is_the_one_nearest_to_it():
    layer = Experts().double()
    X = layer.up.detach().clone()
    on.orthogonal_weight_norm(layer, "up", stacked=True)
    for W, part in zip(layer.up.detach(), X, strict=True):
        torch.testing.assert_close(W, oracle.polar_factor(part), rtol=0, atol=1e-12)


def test_case_29_without_the_word_a_stack_is_refused_and_nothing_changed():
    layer: Any = Experts()
    V = layer.up
    with pytest.raises(ValueError, match=r"up of Experts .*\(4, 6, 8\).*stacked=True.*\(4, 48\)"):
        on.orthogonal_weight_norm(layer, "up")
    assert layer.up is V


@pytest.mark.parametrize("convolution", [nn.Conv1d(3, 4, 3), nn.ConvTranspose1d(3, 4, 3)])
def test_a_kernel_of_three_dimensions_is_no_stack(convolution: nn.Module):
    on.orthogonal_weight_norm(convolution)
    assert on.inspect(convolution).layers[0].groups == (4,)


@pytest.mark.usefixtures("unenforced")
@pytest.mark.parametrize("shape", [(6, 8), (2, 3, 4, 5)])
def test_a_stack_has_three_dimensions(shape: tuple[int, ...]):
    layer = Experts(*shape)
    with pytest.raises(ValueError, match=r"3 dimensions \(E, n, d\) with stacked=True"):
        on.orthogonal_weight_norm(layer, "up", stacked=True)
    with pytest.raises(TypeError, match="stacked must be True or False; got 'yes'"):
        on.orthogonal_weight_norm(layer, "up", stacked="yes")


CASES: dict[str, tuple[tuple[int, ...], dict[str, Any], tuple[int, ...]]] = {
    "wide": ((E, N, D), {}, (6,)),
    "tall": ((E, 10, 4), {}, (4, 3, 3)),
    "centred": ((E, N, D), {"center": True}, (6,)),
    "grouped": ((E, N, D), {"group_size": 4}, (3, 3)),
    "blocks": ((E, N, D), {"blocks": 2}, (3, 3)),
    "unequal blocks": ((E, N, D), {"blocks": (4, 2)}, (4, 2)),
    "one matrix": ((1, N, D), {}, (6,)),
}


@pytest.mark.parametrize("case", CASES)
def test_weights_and_gradients_are_those_of_each_matrix_by_itself(case: str):
    shape, options, sizes = CASES[case]
    layer, G, center = converted(*shape, **options), torch.randn(*shape).double(), options.get("center", False)
    with torch.no_grad():
        free(layer, "up").normal_()
    layer.up.backward(G)
    V = free(layer, "up")
    for i in range(shape[0]):
        W = oracle.grouped(oracle.forward, sizes, V.detach()[i], center=center)
        torch.testing.assert_close(layer.up.detach()[i], W, rtol=0, atol=1e-10)
        expected = oracle.grouped(oracle.backward, sizes, V.detach()[i], G[i], center=center)
        torch.testing.assert_close(V.grad[i], expected, rtol=0, atol=1e-9)  # type: ignore[index]


@pytest.mark.parametrize("blocks", [None, 2])
def test_columns_of_each_matrix(blocks: int | None):
    layer = converted(3, 10, 4, tall="columns", blocks=blocks)
    for matrix in layer.up.detach():
        for block in matrix.chunk(blocks or 1):
            torch.testing.assert_close(block.T @ block, torch.eye(4).double())
    assert "in each of 3 matrices" in repr(layer)


def test_a_learned_scale_has_a_factor_for_each_row_of_each_matrix():
    layer: Any = Experts().double()
    X = layer.up.detach().clone()
    on.orthogonal_weight_norm(layer, "up", stacked=True, scale="row_norms")
    assert layer.parametrizations.up[0].scale.shape == (E * N,)
    torch.testing.assert_close(layer.up.norm(dim=-1), X.norm(dim=-1))
    layer.up = 2 * X
    torch.testing.assert_close(layer.up.norm(dim=-1), 2 * X.norm(dim=-1))
    torch.testing.assert_close(converted(scale=3.0).up.norm(dim=-1), torch.full((E, N), 3.0).double())


def test_a_forward_computes_the_stack_once_and_folds_to_the_plain_module():
    layer, x = converted(), torch.randn(5, D).double()
    owner, calls = map_of(layer, "up"), []
    compute = owner._weight
    owner._weight = lambda V: calls.append(V) or compute(V)
    output = layer(x)
    assert len(calls) <= 1  # none where all weights were computed together
    del owner._weight
    plain = on.fold(layer)
    assert type(plain) is Experts
    torch.testing.assert_close(plain(x), output)


def test_a_plain_checkpoint_loads_and_a_lost_matrix_is_completed():
    plain, layer = Experts().double(), converted()
    with torch.no_grad():
        plain.up[2] = 0
    with pytest.warns(UserWarning, match=f"has lost {N} of its {E * N} directions"):
        layer.load_state_dict(plain.state_dict())
    torch.testing.assert_close(layer.up.detach()[1], polar(plain.up[1], center=False))
    assert error_of_rows(layer.up.detach()[2], (N,)) < 1e-12


def test_diagnostics_look_at_each_matrix():
    layer = converted(blocks=2)
    with torch.no_grad():
        free(layer, "up")[3, 0] = 0
    report = on.inspect(layer).layers[0]
    assert report.groups == (3, 3) * E
    assert report.error == on.orthogonality_error(layer)["up"] == 1
    assert "up has lost rank" in on.weight_problems(layer)[0]
    on.renormalize_(layer, norm=2.0)
    assert on.weight_problems(layer) == []
    assert on.inspect(layer).layers[0].v_norm == pytest.approx(2)
    # The norm is that of the worst matrix, not of one matrix of all rows.
    worst = max(float(torch.linalg.matrix_norm(matrix, 2)) for matrix in layer.up.detach())
    assert on.inspect(layer).layers[0].w_norm == pytest.approx(worst)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_a_file_tells_the_stack(suffix: str, tmp_path: Path):
    layer = converted(dtype=torch.float32, scale="learned")
    expected, file = on.inspect(layer).layers[0], tmp_path / f"weights.{suffix}"
    if suffix == "pt":
        torch.save(layer.state_dict(), file)
    else:
        from safetensors.torch import save_file

        save_file(layer.state_dict(), file)
    assert on.inspect_file(file).layers[0] == expected


def test_a_plain_file_is_read_matrix_by_matrix_in_the_better_way(tmp_path: Path):
    plain: Any = on.fold(converted(dtype=torch.float32))
    tensors = {"experts.up": plain.up.detach(), "experts.down": plain.up.detach().mT.contiguous()}
    torch.save(tensors, tmp_path / "plain.pt")
    table = on.inspect_file(tmp_path / "plain.pt")
    assert all(layer.error < 1e-5 for layer in table.layers)
    assert [layer.groups for layer in table.layers] == [(N,) * E, (N,) * E]


def test_several_stacks_are_cached_together():
    model: Any = nn.ModuleList([converted(), converted(2, N, D)])
    expected = [layer.up.detach() for layer in model]
    with on.cached(model):
        assert all(torch.equal(layer.up, W) for layer, W in zip(model, expected, strict=True))


@pytest.mark.compiled
def test_a_stack_compiles_to_what_eager_computes():
    layer, x = converted(), torch.randn(5, D).double()
    torch.testing.assert_close(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), layer(x))
