"""`inspect_file`: the table of `inspect` for a file, and a clear word for what is no file of weights."""

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

import orthonorm as on
from orthonorm.checkpoints import owners_in_file

CONFIG = on.OLMConfig(group_size=4, scale=True)


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


@pytest.mark.parametrize("save", [save_safetensors, save_pt, save_nested], ids=lambda save: save.__name__)
def test_a_converted_models_file_has_the_models_table(save: Callable, tmp_path: Path):
    model = network()
    path = save(model.state_dict(), tmp_path / "model")
    assert {row.weight: row for row in on.inspect_file(path, CONFIG).layers} == {
        row.weight: row for row in on.inspect(model).layers
    }


def test_a_folded_models_file_shows_which_weights_are_orthogonal(tmp_path: Path):
    plain = on.fold(network())
    table = {row.weight: row for row in on.inspect_file(save_pt(plain.state_dict(), tmp_path / "m"), CONFIG).layers}
    orthogonal = {"0.weight", "1.weight", "2.weight_hh_l0", "3.in_proj_weight", "3.out_proj.weight"}
    assert set(table) == orthogonal | {"2.weight_ih_l0", "4.weight"}
    assert {key for key, row in table.items() if row.error < 1e-6} == orthogonal
    norms = plain[1].weight.detach().norm(dim=1)  # type: ignore[index]
    assert table["1.weight"].scale == f"{float(norms.min()):.3g} to {float(norms.max()):.3g}"


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


def write_broken_safetensors(path: Path) -> Path:
    return write_text(path.with_suffix(".safetensors"))


WRONG = [
    pytest.param(lambda path: path, FileNotFoundError, "there is no file", id="missing"),
    pytest.param(write_text, ValueError, "cannot be read as weights", id="text"),
    pytest.param(write_code, ValueError, "a pickled model is not read", id="code"),
    pytest.param(write_biases, ValueError, "holds no matrix: 1 tensors", id="no matrix"),
    pytest.param(write_number, ValueError, "holds a int, not a state_dict", id="no dictionary"),
    pytest.param(write_broken_safetensors, ValueError, "not a whole .safetensors", id="broken"),
]


@pytest.mark.parametrize(("write", "exception", "message"), WRONG)
def test_wrong_files(write: Callable[[Path], Path], exception: type[Exception], message: str, tmp_path: Path):
    with warnings.catch_warnings(), pytest.raises(exception, match=message):
        on.inspect_file(write(tmp_path / "model"))
    assert not Trap.ran


def test_a_tensor_without_rows_gets_no_row(tmp_path: Path):
    torch.save({"none.weight": torch.zeros(0, 5), "w": torch.randn(4, 9)}, tmp_path / "model.pt")
    assert [row.weight for row in on.inspect_file(tmp_path / "model.pt").layers] == ["w"]
    assert [key for key, _, _ in owners_in_file(tmp_path / "model.pt")] == ["w"]


@pytest.mark.parametrize("name", ["0.weight", "weight_hh_l0"])
def test_a_free_matrix_without_rows_has_a_row_that_says_so(name: str, tmp_path: Path):
    key = f"{name.replace('weight', 'parametrizations.weight')}.original"
    torch.save({key: torch.zeros(0, 5)}, tmp_path / "model.pt")
    (row,) = on.inspect_file(tmp_path / "model.pt").layers
    assert (row.shape, row.error, row.norm) == ((0, 5), 0.0, 0.0)


def test_a_zero_row_counts_as_an_error_of_one(tmp_path: Path):
    W = torch.eye(4, 9)
    W[2] = 0
    torch.save({"w": W}, tmp_path / "model.pt")
    (row,) = on.inspect_file(tmp_path / "model.pt").layers
    assert row.error == 1.0
