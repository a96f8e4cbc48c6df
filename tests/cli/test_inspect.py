"""`orthonorm inspect` on files as people have them, and one line for a file that it cannot read."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

import orthonorm as on
from orthonorm.cli import main


def network() -> nn.Module:
    model = nn.ModuleDict({"body": nn.Conv2d(3, 8, 3), "gates": nn.LSTM(6, 5), "head": nn.Linear(8, 6)})
    chosen = {"body", "gates", "head"}
    return on.orthogonalize_(model, on.OrthogonalConfig(group_size=4, scale="row_norms"), lambda _, fqn: fqn in chosen)


def as_safetensors(model: nn.Module, folder: Path) -> Path:
    safetensors.torch.save_file(model.state_dict(), folder / "model.safetensors")
    return folder / "model.safetensors"


def as_pt(model: nn.Module, folder: Path) -> Path:
    torch.save({"epoch": 3, "model": model.state_dict()}, folder / "model.pt")
    return folder / "model.pt"


def call(*arguments: str | Path) -> str:
    with redirect_stdout(StringIO()) as output:
        main(["inspect", *map(str, arguments)])
    return output.getvalue()


@pytest.mark.parametrize("save", [as_safetensors, as_pt], ids=["safetensors", "pt"])
def test_the_table_is_that_of_the_model(save: Callable[[nn.Module, Path], Path], tmp_path: Path):
    model = network()
    assert call(save(model, tmp_path), "--group-size", "4").startswith(f"{on.inspect(model)}\n")


def test_the_options_that_a_file_of_torch_remembers_need_no_asking(tmp_path: Path):
    model = network()
    assert call(as_pt(model, tmp_path), "--group-size", "3", "--no-center").startswith(f"{on.inspect(model)}\n")


def test_options_say_how_the_model_was_converted(tmp_path: Path):
    layer = nn.Linear(9, 12)
    nn.init.orthogonal_(layer.weight[:6])
    nn.init.orthogonal_(layer.weight[6:])
    path = as_pt(nn.Sequential(layer), tmp_path)
    tail = call(path, "--group-size", "5", "--grouping", "tail").splitlines()[2]
    assert "2 groups of 5 rows and 1 group of 2 rows" in tail
    blocks = call(path, "--blocks", "2", "--no-center").splitlines()[2].split("  ")
    assert [cell.strip() for cell in blocks if cell][:3] == ["0.weight", "12 x 9", "2 groups of 6 rows"]
    assert float([cell for cell in blocks if cell][3]) < 1e-6


def test_a_plain_file_says_that_the_classifier_is_among_its_rows(tmp_path: Path):
    plain = nn.Sequential(nn.Linear(9, 4), nn.Linear(4, 3))
    lines = call(as_pt(plain, tmp_path), "--no-center", "--blocks", "1").splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["0.weight", "1.weight"]
    assert "balanced, not centred, blocks 1;" in lines[-2]
    assert "no V" in lines[-1]


def test_a_filter_keeps_some_weights_by_name(tmp_path: Path):
    path = as_safetensors(network(), tmp_path)
    rows = call(path, "--only", "gates.*", "--only", "head.weight").splitlines()[2:4]
    assert [row.split()[0] for row in rows] == ["gates.weight_hh_l0", "head.weight"]


def test_a_layer_that_is_the_whole_model_is_recognised(tmp_path: Path):
    layer = on.OrthogonalLinear(8, 4)
    assert call(as_pt(layer, tmp_path)).startswith(f"{on.inspect(layer)}\n")


class Whole(nn.Linear):
    """A model of somebody's own class, which torch.save pickles with its code's name."""


def missing(folder: Path) -> Path:
    return folder / "no.pt"


def text(folder: Path) -> Path:
    (folder / "notes.pt").write_text("no weights")
    return folder / "notes.pt"


def cut(folder: Path) -> Path:
    path = as_safetensors(network(), folder)
    path.write_bytes(path.read_bytes()[:-100])
    return path


def whole(folder: Path) -> Path:
    torch.save(Whole(3, 3), folder / "whole.pt")
    return folder / "whole.pt"


def folder_of_weights(folder: Path) -> Path:
    as_pt(nn.Linear(4, 4), folder)
    return folder


def empty_folder(folder: Path) -> Path:
    return folder


def biases(folder: Path) -> Path:
    torch.save({"bias": torch.zeros(3)}, folder / "bias.pt")
    return folder / "bias.pt"


def good(folder: Path) -> Path:
    return as_pt(nn.Linear(4, 4), folder)


WRONG: list[Any] = [
    pytest.param(missing, [], "there is no file", id="missing"),
    pytest.param(
        folder_of_weights, [], "must be a file of weights; got a folder. Give a file in it, .safeten", id="folder"
    ),
    pytest.param(folder_of_weights, [], "or .pt; it holds model.pt.", id="folder's cure"),
    pytest.param(empty_folder, [], "it contains no file with one of these endings.", id="empty folder"),
    pytest.param(text, [], "cannot be read as weights (UnpicklingError). Expected a .safetensors file", id="text"),
    pytest.param(cut, [], "is not a whole .safetensors file", id="cut"),
    pytest.param(whole, [], ".Whole to be read, and so holds more than weights", id="pickle"),
    pytest.param(whole, [], "save its state_dict", id="pickle's cure"),
    pytest.param(biases, [], "holds no matrix: 1 tensors", id="no weight"),
    pytest.param(good, ["--only", "head"], "the filter keeps none of its 1 weights, which are weight", id="filter"),
    pytest.param(good, ["--group-size", "0"], "group_size must be at least 1, or None", id="group size"),
    pytest.param(good, ["--grouping", "odd"], "grouping must be one of 'balanced', 'tail'; got 'odd'", id="grouping"),
    pytest.param(good, ["--blocks", "3"], "blocks, as a number, must divide the 4 rows; got 3", id="blocks"),
]


@pytest.mark.parametrize(("make", "options", "message"), WRONG)
def test_a_mistake_is_one_line_and_exit_code_two(
    make: Callable[[Path], Path], options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as stop:
        main(["inspect", str(make(tmp_path)), *options])
    captured = capsys.readouterr()
    assert (stop.value.code, captured.out) == (2, "")
    (line,) = captured.err.splitlines()
    assert line.startswith("orthonorm: ")
    assert message in line


def test_without_safetensors_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    path = as_safetensors(network(), tmp_path)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(SystemExit) as stop:
        main(["inspect", str(path)])
    assert stop.value.code == 2
    assert (
        capsys.readouterr().err
        == "orthonorm: reading .safetensors needs its package. Install it with pip install safetensors.\n"
    )


def test_the_command_needs_the_library_alone(tmp_path: Path):
    absent = [
        "typer",
        "rich",
        "lightning",
        "torchvision",
        "torchmetrics",
        "matplotlib",
        "mlxtend",
        "scipy",
        "joblib",
        "dask",
    ]
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
        f"sys.argv = ['orthonorm', 'inspect', {str(as_pt(network(), tmp_path))!r}]\n"
        "from orthonorm.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "gates.weight_hh_l0" in done.stdout


def test_columns_of_a_file_that_does_not_remember_them(tmp_path: Path):
    path = as_safetensors(on.OrthogonalLinear(6, 20, tall="columns", bias=False), tmp_path)
    assert "1 block of 6 columns" in call(path, "--tall", "columns")
    assert "columns" not in call(path).splitlines()[2]


def test_the_package_runs_as_a_module(tmp_path: Path):
    path = as_safetensors(network(), tmp_path)
    done = subprocess.run([sys.executable, "-m", "orthonorm", "inspect", str(path)], capture_output=True, text=True)
    text = StringIO()
    with redirect_stdout(text):
        main(["inspect", str(path)])
    assert done.returncode == 0, done.stderr
    assert done.stdout == text.getvalue()
