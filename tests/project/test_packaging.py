"""What is shipped: the wheel is whole, imports little, and its public types are complete."""

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import orthonorm
from wheel import build

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command without this session's search path."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | environment
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel unpacked in `site`, and the source distribution in `sources`."""
    folder = tmp_path_factory.mktemp("built")
    with zipfile.ZipFile(build("wheel", folder / "wheel")) as file:
        file.extractall(folder / "site")
    with tarfile.open(build("sdist", folder / "sdist")) as file:
        file.extractall(folder / "sources", filter="data")
    return folder


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def package_files() -> set[str]:
    """Every file of the package in this checkout."""
    return {name for name in files(SOURCES) if "__pycache__" not in name}


def test_the_wheel_holds_the_package_and_nothing_else(built: Path):
    shipped = {name for name in files(built / "site") if ".dist-info/" not in name}
    assert {"orthonorm/py.typed", "orthonorm/__init__.py"} <= shipped
    assert {name.split("/")[0] for name in shipped} == {"orthonorm"}
    assert shipped == package_files()


def test_the_wheel_says_what_the_project_says(built: Path):
    (info,) = (built / "site").glob("*.dist-info")
    metadata = email.message_from_string((info / "METADATA").read_text())
    assert (metadata["Name"], metadata["Version"]) == (PROJECT["name"], orthonorm.__version__)
    needed = metadata.get_all("Requires-Dist") or []
    assert sorted(n for n in needed if "extra ==" not in n) == sorted(PROJECT["dependencies"])
    assert set(metadata.get_all("Provides-Extra") or []) == PROJECT["optional-dependencies"].keys()
    assert (info / "licenses" / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert "orthonorm = orthonorm.cli:main" in (info / "entry_points.txt").read_text()


def test_the_source_distribution_builds_what_the_checkout_does(built: Path):
    (folder,) = (built / "sources").iterdir()
    shipped = files(folder)
    assert {name.removeprefix("src/") for name in shipped if name.startswith("src/")} == package_files()
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "conftest.py"} <= shipped


PROGRAM = """
import sys, torch
before = set(sys.modules)
import orthonorm
W = orthonorm.functional.orthonormalize(torch.randn(4, 9))
assert (W @ W.T - torch.eye(4)).abs().max() < 1e-5
print(orthonorm.__file__)
print(*(set(sys.modules) - before))
"""


def test_the_unpacked_wheel_works_and_imports_little(built: Path):
    done = run([sys.executable, "-c", PROGRAM], built, PYTHONPATH=str(built / "site"))
    assert done.returncode == 0, done.stderr
    place, modules = done.stdout.splitlines()
    assert Path(place).is_relative_to(built / "site")
    brought = {name for name in modules.split() if name.split(".")[0] not in {"orthonorm", *sys.stdlib_module_names}}
    # A package that torch has imported may hand out more of its modules; beyond those there is jaxtyping.
    assert {name.split(".")[0] for name in brought} <= {"jaxtyping", "numpy", "torch"}
    heavy = re.compile(r"torch\.(_dynamo|_inductor|distributed\.(tensor|fsdp|_composable)|onnx|testing|optim\._multi)")
    assert sorted(filter(heavy.match, brought)) == []


def test_the_types_of_all_public_names_are_known(built: Path):
    # It takes the packages from the Python that is found first.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "basedpyright", "--verifytypes", "orthonorm", "--ignoreexternal"]
    done = run(command, built, PATH=path, PYTHONPATH=str(built / "site"))
    unknown = re.findall(r"^orthonorm\.\S+\n.* error: .*$", done.stdout, re.MULTILINE)
    assert unknown == []
    assert "Type completeness score: 100%" in done.stdout
    assert int(re.findall(r'^Symbols exported by "orthonorm": (\d+)$', done.stdout, re.MULTILINE)[0]) > 100
