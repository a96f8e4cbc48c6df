"""What docs/alternatives.md says of the installed packages, asked of the packages themselves."""

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import geotorch
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

import orthonorm as on

PAGE = (Path(__file__).parents[2] / "docs" / "alternatives.md").read_text()
pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]


def with_geotorch(layer: nn.Module) -> nn.Module:
    geotorch.orthogonal(layer, "weight")
    return layer


PEERS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "torch, matrix_exp": lambda layer: orthogonal(layer, orthogonal_map="matrix_exp"),
    "torch, cayley": lambda layer: orthogonal(layer, orthogonal_map="cayley"),
    "torch, householder": lambda layer: orthogonal(layer, orthogonal_map="householder"),
    "geotorch": with_geotorch,
}
every_peer = pytest.mark.parametrize("make", PEERS.values(), ids=PEERS)


@pytest.fixture(name="geoopt", scope="module")
def import_geoopt() -> Iterator[ModuleType]:
    """The package, which warns at import."""
    with warnings.catch_warnings(action="ignore"):
        import geoopt

        yield geoopt


def weight(module: nn.Module) -> Tensor:
    return module.weight.detach()  # type: ignore[union-attr, operator, return-value]


def error(W: Tensor) -> float:
    """The largest entry of |W W^T - I| of the flattened rows."""
    rows = W.double().flatten(1)
    return float((rows @ rows.T - torch.eye(len(rows))).abs().max())


def ours(layer: nn.Module) -> nn.Module:
    return on.orthogonal_weight_norm(layer, center=False)


@every_peer
def test_a_tall_weight_has_orthonormal_columns_and_ours_groups_of_rows(make: Callable[[nn.Module], nn.Module]):
    assert error(weight(make(nn.Linear(4, 10))).T) < 1e-5
    W = weight(ours(nn.Linear(4, 10)))
    assert max(error(group) for group in W.tensor_split(3)) < 1e-6


@every_peer
def test_a_kernel_is_a_batch_of_small_matrices_and_ours_is_flattened(make: Callable[[nn.Module], nn.Module]):
    W = weight(make(nn.Conv2d(4, 8, 3)))
    assert max(error(matrix) for matrix in W.reshape(-1, 3, 3)) < 1e-5
    assert error(W) > 1
    assert error(weight(ours(nn.Conv2d(4, 8, 3)))) < 1e-6


@every_peer
def test_state_beside_the_weight_and_no_plain_checkpoint(make: Callable[[nn.Module], nn.Module]):
    plain, layer = nn.Linear(8, 4), make(nn.Linear(8, 4))
    assert [name for name, _ in layer.named_buffers()] == ["parametrizations.weight.0.base"]
    assert layer.get_buffer("parametrizations.weight.0.base").shape == (8, 8)
    with pytest.raises(RuntimeError, match="Missing key"):
        layer.load_state_dict(plain.state_dict())
    assert list(ours(nn.Linear(8, 4)).named_buffers()) == []
    ours(nn.Linear(8, 4)).load_state_dict(plain.state_dict())


@every_peer
def test_a_start_is_not_the_nearest_matrix(make: Callable[[nn.Module], nn.Module]):
    torch.manual_seed(0)
    plain = nn.Linear(8, 8)
    U, _, Vt = torch.linalg.svd(weight(plain))
    layer = nn.Linear(8, 8)
    layer.load_state_dict(plain.state_dict())
    assert (weight(make(layer)) - U @ Vt).abs().max() > 0.1
    assert (weight(ours(plain)) - U @ Vt).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["torch, matrix_exp", "torch, cayley", "geotorch"])
def test_second_derivatives(name: str):
    parametrizations = PEERS[name](nn.Linear(4, 2, dtype=torch.float64)).parametrizations.weight  # type: ignore[union-attr]
    V = parametrizations.original.detach().clone().requires_grad_()  # type: ignore[union-attr, operator]

    def of(V: Tensor) -> Tensor:
        return torch.func.functional_call(parametrizations, {"original": V}, ())  # type: ignore[arg-type]

    assert torch.autograd.gradgradcheck(of, (V,))


@pytest.mark.parametrize("name", ["torch, matrix_exp", "geotorch"])
def test_bfloat16_where_it_runs(name: str):
    assert 1e-4 < error(weight(PEERS[name](nn.Linear(16, 8)).bfloat16())) < 0.05


@pytest.mark.parametrize("name", ["torch, cayley", "torch, householder"])
def test_bfloat16_where_it_does_not(name: str):
    layer = PEERS[name](nn.Linear(16, 8)).bfloat16()
    with pytest.raises(RuntimeError, match="not implemented for 'BFloat16'"):
        weight(layer)


def test_torch_takes_complex_weights_and_ours_refuses_them():
    W = weight(orthogonal(nn.Linear(6, 3, dtype=torch.complex64)))
    assert (W @ W.mH - torch.eye(3)).abs().max() < 1e-5
    with pytest.raises(TypeError, match="complex"):
        ours(nn.Linear(6, 3, dtype=torch.complex64))


def test_decay_turns_householders_weight_and_no_other():
    def moved(make: Callable[[nn.Module], nn.Module]) -> float:
        torch.manual_seed(0)
        layer = make(nn.Linear(6, 6, bias=False))
        before = weight(layer).clone()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.5, weight_decay=1.0)
        (0 * layer(torch.ones(1, 6))).sum().backward()
        optimizer.step()
        return float((weight(layer) - before).abs().max())

    assert moved(PEERS["torch, householder"]) > 0.1
    assert max(moved(make) for name, make in PEERS.items() if name != "torch, householder") < 1e-5
    assert moved(ours) < 1e-5


def test_geoopt_keeps_tall_weights_and_stays_off_the_manifold_where_a_checkpoint_left_it(geoopt: ModuleType):
    manifold = geoopt.Stiefel()
    with pytest.raises(ValueError, match="should have shape"):
        manifold.random(4, 8)
    W = geoopt.ManifoldParameter(manifold.random(8, 4), manifold=manifold)
    optimizer = geoopt.optim.RiemannianSGD([W], lr=0.1)
    W.data.add_(0.1)
    (W * torch.randn(8, 4)).sum().backward()
    optimizer.step()
    assert error(W.detach().T) > 0.01
    with pytest.warns(UserWarning, match="moved 1 of 1 weights onto the manifold"):
        on.StiefelSGD([W.detach().clone().requires_grad_()], lr=0.1)


def test_decay_leaves_geoopts_weight(geoopt: ModuleType):
    manifold = geoopt.Stiefel()
    W = geoopt.ManifoldParameter(manifold.random(8, 4), manifold=manifold)
    before = W.detach().clone()
    (0 * W).sum().backward()
    geoopt.optim.RiemannianSGD([W], lr=0.5, weight_decay=1.0).step()
    assert (W - before).abs().max() < 1e-5


def test_the_page_says_which_versions_were_asked():
    said = dict(re.findall(r"(torch|geotorch|geoopt) (\d+\.\d+\.\d+)", PAGE))
    assert said.keys() == {"torch", "geotorch", "geoopt"}


def test_the_largest_error_of_each_is_of_the_size_that_the_page_says(geoopt: ModuleType):
    (row,) = re.findall(r"^\| largest error, Gaussian 64 x 576, float32 \|(.*)$", PAGE, re.MULTILINE)
    said = [float(re.findall(r"\d[\d.]*e-\d+", cell)[0]) for cell in row.split("|")[:4]]
    exact = float(re.findall(r"\d[\d.]*e-\d+", row)[1])
    V = torch.randn(64, 576, generator=torch.Generator().manual_seed(0))

    def with_weight(make: Callable[[nn.Module], nn.Module]) -> float:
        layer = nn.Linear(576, 64)
        layer.weight.data.copy_(V)
        return error(weight(make(layer)))

    found = [
        error(on.functional.orthonormalize(V)),
        with_weight(PEERS["torch, householder"]),
        with_weight(PEERS["geotorch"]),
        error(geoopt.Stiefel().projx(V.mT.contiguous()).mT),
    ]
    assert found == pytest.approx(said, rel=1.0, abs=0)  # of its size: at most twice
    assert error(on.functional.orthonormalize(V, precision="float64")) == pytest.approx(exact, rel=1.0, abs=0)
