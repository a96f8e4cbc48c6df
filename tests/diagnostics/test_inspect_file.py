"""`inspect_file`: the table of `inspect` for a file, and a clear word for what is no file of weights."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

import orthonorm as on
from orthonorm.diagnostics._files import owners_in_file

CONFIG = on.OrthogonalConfig(group_size=4, scale="row_norms")


def network() -> nn.Module:
    parts = [nn.Conv2d(3, 8, 3), nn.Linear(8, 6), nn.LSTM(6, 5), nn.MultiheadAttention(6, 2), nn.Linear(5, 2)]
    model = nn.ModuleList(parts)
    return on.orthogonalize_(model, CONFIG, lambda _, fqn: fqn in {"0", "1", "2", "3"})


def save_safetensors(state: dict[str, torch.Tensor], path: Path) -> Path:
    safetensors.torch.save_file(state, path.with_suffix(".safetensors"))
    return path.with_suffix(".safetensors")


def save_pt(state: dict[str, torch.Tensor], path: Path) -> Path:
    torch.save(state, path.with_suffix(".pt"))
    return path.with_suffix(".pt")


def save_nested(state: dict[str, torch.Tensor], path: Path) -> Path:
    torch.save({"epoch": 3, "state_dict": state}, path.with_suffix(".ckpt"))
    return path.with_suffix(".ckpt")


@pytest.mark.parametrize("config", [on.OrthogonalConfig(scale="learned", blocks=(2, 2)), on.OLMConfig(center=False)])
def test_a_configuration_is_saved_beside_the_weights_and_the_file_is_inspected(config: Any, tmp_path: Path):
    model = on.orthogonalize_(nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2)), config)
    path = tmp_path / "run.pt"
    torch.save({"state_dict": model.state_dict(), "hyper_parameters": {"config": config}}, path)
    loaded = torch.load(path, weights_only=True)["hyper_parameters"]["config"]
    assert loaded == config
    assert type(loaded) is type(config)
    assert on.inspect_file(path).layers == on.inspect(model).layers


@pytest.mark.parametrize("save", [save_safetensors, save_pt, save_nested], ids=lambda save: save.__name__)
def test_a_converted_models_file_has_the_models_table(save: Callable, tmp_path: Path):
    model = network()
    path = save(model.state_dict(), tmp_path / "model")
    assert {row.weight: row for row in on.inspect_file(path, CONFIG).layers} == {
        row.weight: row for row in on.inspect(model).layers
    }


def padded() -> nn.Module:
    return nn.ModuleList([nn.Embedding(7, 4, padding_idx=2), nn.EmbeddingBag(5, 9, padding_idx=0), nn.Linear(4, 3)])


def transposed() -> nn.Module:
    return nn.ModuleList([nn.ConvTranspose1d(6, 4, 3), nn.ConvTranspose2d(4, 6, 3, groups=2), nn.Conv2d(4, 6, 3)])


def recurrent() -> nn.Module:
    cells = [nn.LSTMCell(6, 4), nn.GRUCell(3, 5), nn.RNNCell(7, 4)]
    return nn.ModuleList([nn.LSTM(6, 4, num_layers=2, bidirectional=True), nn.GRU(4, 6), nn.RNN(5, 3), *cells])


def projected() -> nn.Module:
    return nn.ModuleList([nn.LSTM(7, 5, proj_size=3)])


# Without a scale nothing says which tables have padding and which kernels are transposed.
TOLD = [
    (padded, True), (transposed, True), (recurrent, True), (recurrent, False), (projected, True), (projected, False),
]  # fmt: skip


@pytest.mark.parametrize("group_size", [None, 3])
@pytest.mark.parametrize(("make", "scale"), TOLD, ids=[f"{make.__name__}, scale={scale}" for make, scale in TOLD])
def test_what_the_names_shapes_and_scales_of_a_file_tell_is_used(
    make: Callable[[], nn.Module], scale: bool, group_size: int | None, tmp_path: Path
):
    config = on.OrthogonalConfig(input_weights=True, scale="learned" if scale else None, group_size=group_size)
    model = on.orthogonalize_(make(), config, lambda _, fqn: fqn != "")
    found = on.inspect_file(save_pt(model.state_dict(), tmp_path / "model"), config)
    assert {row.weight: row for row in found.layers} == {row.weight: row for row in on.inspect(model).layers}


def test_the_owners_of_a_file_are_those_of_its_free_matrices(tmp_path: Path):
    model = on.orthogonalize_(
        nn.Sequential(nn.Linear(8, 6), nn.Linear(6, 4)),
        on.OrthogonalConfig(scale="row_norms"),
        lambda _, fqn: fqn != "",
    )
    found = owners_in_file(
        save_pt(model.state_dict() | {"aside.original": torch.ones(3, 5)}, tmp_path / "model"), on.OrthogonalConfig()
    )
    assert [(key, tuple(V.shape), owner.sizes) for key, owner, V in found] == [
        ("0.weight", (6, 8), (6,)),
        ("1.weight", (4, 6), (4,)),
    ]


def remembered() -> nn.Module:
    """Layers of every layout, in options that no configuration gives to all of them, and a plain one."""
    parts: list[Any] = [
        nn.ConvTranspose2d(6, 6, 3, bias=False), nn.ConvTranspose1d(4, 6, 3, groups=2), nn.Conv2d(4, 12, 3, groups=2),
        nn.Linear(12, 8), nn.Linear(9, 12), nn.Embedding(7, 4, padding_idx=2), nn.LSTM(6, 5), nn.Linear(4, 4),
    ]  # fmt: skip
    options: list[dict[str, Any]] = [
        {"center": False}, {"group_size": 2}, {"group_size": 5, "grouping": "tail"},
        {"blocks": (5, 3), "scale": 2.0}, {"blocks": 3, "group_size": 3, "center": False},
    ]  # fmt: skip
    for part, given in zip(parts, options, strict=False):
        on.orthogonal_weight_norm(part, **given)
    on.orthogonalize_(parts[5], on.OLMConfig(scale="row_norms"), lambda *_: True)
    on.orthogonalize_(parts[6], on.OLMConfig(input_weights=True, group_size=4), lambda *_: True)
    return nn.ModuleList(parts)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("asked", [None, on.OLMConfig(group_size=1, center=False, blocks=1)])
def test_case_37_what_the_file_remembers_is_used_whatever_is_asked(
    nested: bool, asked: on.OLMConfig | None, tmp_path: Path
):
    model = remembered()
    path = (save_nested if nested else save_pt)(model.state_dict(), tmp_path / "model")
    assert on.inspect_file(path, asked).layers == on.inspect(model).layers


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda bias: nn.ConvTranspose2d(6, 4, 3, bias=bias),
        lambda bias: nn.ConvTranspose1d(6, 6, 3, bias=bias),
        lambda bias: nn.ConvTranspose3d(4, 6, 2, bias=bias),
    ],
    ids=["narrowing", "square", "widening"],
)
def test_case_37_a_folded_transposed_kernel_is_orthogonal(make: Callable[[bool], Any], bias: bool, tmp_path: Path):
    model = nn.Sequential(on.orthogonal_weight_norm(make(bias)), on.OrthogonalConv2d(4, 6, 3), nn.Conv2d(4, 6, 3))
    expected = on.inspect(model).layers[0].error
    table = on.inspect_file(save_pt(on.fold(model).state_dict(), tmp_path / "model"))
    assert [row.error < 1e-5 for row in table.layers] == [True, True, False]
    assert table.layers[0].error == pytest.approx(expected, abs=1e-5)
    assert (": 0.weight" in table.note) is not (bias and model[0].in_channels != model[0].out_channels)


def test_a_transposed_kernel_of_several_groups_is_told_by_its_bias(tmp_path: Path):
    model = nn.Sequential(on.OrthogonalConvTranspose2d(6, 4, 3, groups=2), on.OrthogonalConvTranspose1d(4, 6, 3))
    found = on.inspect_file(save_safetensors(on.fold(model).state_dict(), tmp_path / "model"))
    assert [row.groups for row in found.layers] == [(2, 2), (6,)]
    assert max(row.error for row in found.layers) < 1e-5
    table = on.inspect(model).layers
    assert on.inspect_file(save_safetensors(model.state_dict(), tmp_path / "v")).layers == table


def test_kernels_of_v_that_nothing_tells_are_named(tmp_path: Path):
    layers = [nn.Conv2d(4, 6, 3, bias=False), nn.Conv2d(6, 6, 3), nn.Conv2d(6, 5, 3), nn.Linear(5, 4, bias=False)]
    model = on.orthogonalize_(nn.Sequential(*layers), on.OrthogonalConfig(), lambda _, fqn: fqn != "")
    found = on.inspect_file(save_safetensors(model.state_dict(), tmp_path / "model"))
    assert found.layers == on.inspect(model).layers
    assert ": 0.weight, 1.weight\n" in found.note


def test_groups_that_do_not_fit_v_are_refused_by_name(tmp_path: Path):
    state = nn.Sequential(on.OrthogonalLinear(9, 4)).state_dict()
    state["0.parametrizations.weight.original"] = torch.ones(6, 9)
    with pytest.raises(ValueError, match=r"^0\.weight .*\(6, 9\).*\(4,\)"):
        on.inspect_file(save_pt(state, tmp_path / "model"))


def test_the_owners_of_a_file_have_its_layouts_and_the_groups_that_are_asked_for(tmp_path: Path):
    model = nn.Sequential(on.OrthogonalConvTranspose2d(6, 6, 3, bias=False), on.OrthogonalLinear(8, 6, group_size=2))
    path = save_pt(model.state_dict(), tmp_path / "model")

    def found(remembered: bool) -> list[tuple[bool, tuple[int, ...]]]:
        owners = owners_in_file(path, on.OLMConfig(group_size=3), remembered=remembered)
        return [(owner.transposed, owner.sizes) for _, owner, _ in owners]

    assert found(False) == [(True, (3, 3)), (False, (3, 3))]
    assert found(True) == [(True, (6,)), (False, (2, 2, 2))]


def test_a_file_whose_state_dict_has_another_key_names_its_keys(tmp_path: Path):
    path = save_pt({"net": network().state_dict(), "opt": {}}, tmp_path / "model")
    with pytest.raises(ValueError, match=r"net, opt"):
        on.inspect_file(path)


@pytest.mark.parametrize(("shape", "entries"), [((7, 4), 6), ((7, 4), 3), ((6, 4, 3), 10), ((6, 4, 3), 16)])
def test_a_scale_that_fits_no_layout_is_refused_by_name(shape: tuple[int, ...], entries: int, tmp_path: Path):
    keys = ("parametrizations.weight.original", "parametrizations.weight.0.scale")
    state = {f"table.{keys[0]}": torch.ones(shape), f"table.{keys[1]}": torch.ones(entries)}
    with pytest.raises(ValueError, match=rf"table\.weight .*\b{entries} entries.*filter"):
        on.inspect_file(save_pt(state, tmp_path / "model"))


def test_a_scale_that_fits_no_layout_of_a_stack_is_refused_by_name(tmp_path: Path):
    keys = ("parametrizations.up.original", "parametrizations.up.0.scale")
    state = {f"experts.{keys[0]}": torch.ones(2, 3, 5), f"experts.{keys[1]}": torch.ones(7)}
    with pytest.raises(ValueError, match=r"experts\.up .*\b7\b.*\(2, 3, 5\).*\b6\b.*\b10\b"):
        on.inspect_file(save_pt(state, tmp_path / "model"))


def test_a_folded_models_file_shows_which_weights_are_orthogonal(tmp_path: Path):
    plain = on.fold(network())
    table = {row.weight: row for row in on.inspect_file(save_pt(plain.state_dict(), tmp_path / "m"), CONFIG).layers}
    orthogonal = {"0.weight", "1.weight", "2.weight_hh_l0", "3.in_proj_weight", "3.out_proj.weight"}
    assert set(table) == orthogonal | {"2.weight_ih_l0", "4.weight"}
    assert {key for key, row in table.items() if row.error < 1e-5} == orthogonal
    norms = plain[1].weight.detach().norm(dim=1)  # type: ignore[index]
    assert table["1.weight"].scale == pytest.approx((float(norms.min()), float(norms.max())))


class Trap:
    ran = False

    def __reduce__(self) -> tuple:
        return (setattr, (Trap, "ran", True))


def write_text(path: Path) -> Path:
    path.write_text("no weights")
    return path


def write_code(path: Path) -> Path:
    torch.save({"weight": Trap()}, path)
    return path


def write_biases(path: Path) -> Path:
    return save_pt({"bias": torch.zeros(3)}, path)


def write_number(path: Path) -> Path:
    torch.save(3, path)
    return path


def write_sparse(path: Path) -> Path:
    return save_pt({"weight": torch.eye(4).to_sparse()}, path)


def write_meta(path: Path) -> Path:
    return save_pt({"weight": torch.empty(4, 9, device="meta")}, path)


def write_meta_of_a_converted_model(path: Path) -> Path:
    return save_pt(on.OrthogonalLinear(9, 4, device="meta", scale="learned").state_dict(), path)


def write_broken_safetensors(path: Path) -> Path:
    return write_text(path.with_suffix(".safetensors"))


WRONG = [
    pytest.param(lambda path: path, FileNotFoundError, "there is no file", id="missing"),
    pytest.param(write_text, ValueError, "cannot be read as weights", id="text"),
    pytest.param(write_code, ValueError, "a pickled model is not read", id="code"),
    pytest.param(write_biases, ValueError, "holds no matrix: 1 tensors", id="no matrix"),
    pytest.param(
        write_sparse,
        ValueError,
        "holds no matrix: 1 tensors, none a dense one",
        id="sparse",
        marks=pytest.mark.filterwarnings("ignore::UserWarning"),  # torch's, on reading
    ),
    pytest.param(write_meta, ValueError, "weight was saved from the meta device", id="meta"),
    pytest.param(write_meta_of_a_converted_model, ValueError, "weight was saved from the meta device", id="meta V"),
    pytest.param(
        write_number,
        ValueError,
        "must hold a state_dict of names and tensors; got an object of type int",
        id="no dictionary",
    ),
    pytest.param(write_broken_safetensors, ValueError, "not a whole .safetensors", id="broken"),
]


@pytest.mark.parametrize(("write", "exception", "message"), WRONG)
def test_wrong_files(write: Callable[[Path], Path], exception: type[Exception], message: str, tmp_path: Path):
    with warnings.catch_warnings(), pytest.raises(exception, match=message):
        on.inspect_file(write(tmp_path / "model"))
    assert not Trap.ran


@pytest.mark.usefixtures("unenforced")
def test_a_module_is_no_file_and_a_file_no_module():
    with pytest.raises(TypeError, match=r"must be that of a file; got Linear\. For a module call orthonorm\.inspect"):
        on.inspect_file(nn.Linear(4, 4))  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"must be a torch\.nn\.Module; got str\. For a file call orthonorm\.inspect_file"
    ):
        on.inspect("model.pt")  # type: ignore[arg-type]


def test_a_tensor_without_rows_gets_no_row(tmp_path: Path):
    torch.save({"none.weight": torch.zeros(0, 5), "w": torch.randn(4, 9)}, tmp_path / "model.pt")
    assert [row.weight for row in on.inspect_file(tmp_path / "model.pt").layers] == ["w"]
    assert [key for key, _, _ in owners_in_file(tmp_path / "model.pt", on.OrthogonalConfig())] == ["w"]


@pytest.mark.parametrize("name", ["0.weight", "weight_hh_l0"])
def test_an_unconstrained_parameter_without_rows_has_a_row_that_says_so(name: str, tmp_path: Path):
    key = f"{name.replace('weight', 'parametrizations.weight')}.original"
    torch.save({key: torch.zeros(0, 5)}, tmp_path / "model.pt")
    (row,) = on.inspect_file(tmp_path / "model.pt").layers
    assert (row.shape, row.error, row.v_norm) == ((0, 5), 0.0, 0.0)


def test_a_zero_row_counts_as_an_error_of_one(tmp_path: Path):
    W = torch.eye(4, 9)
    W[2] = 0
    torch.save({"w": W}, tmp_path / "model.pt")
    (row,) = on.inspect_file(tmp_path / "model.pt").layers
    assert row.error == 1.0


@pytest.mark.parametrize("scaled", [None, "row_norms"])
def test_float8_is_looked_at_in_float32(scaled: Any, tmp_path: Path):
    state = on.OrthogonalLinear(9, 4, scale=scaled).state_dict()
    eight = {key: value.to(torch.float8_e4m3fn) for key, value in state.items()}
    torch.save(eight, tmp_path / "eight.pt")
    torch.save({key: value.float() for key, value in eight.items()}, tmp_path / "same.pt")
    tables = [str(on.inspect_file(tmp_path / name)) for name in ("eight.pt", "same.pt")]
    assert tables[0] == tables[1]
    assert [V.dtype for _, _, V in owners_in_file(tmp_path / "eight.pt", on.OrthogonalConfig())] == [torch.float32]
