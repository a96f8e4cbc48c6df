"""The runner of seeded faults, on a package of one file: what is a kill, what only looks so, and what is an error."""

import ast
from pathlib import Path

import pytest

from seeded_faults.fault import Fault, FaultError, seed
from seeded_faults.library import LIBRARY
from seeded_faults.reproduction import REPRODUCTION
from seeded_faults.running import Outcome, run_faults

ROOT = Path(__file__).parents[2]
FAULTS = (*LIBRARY, *REPRODUCTION)

HALF = """
FACTOR = 2

def half(x):
    # exact
    return (
        x / FACTOR
    )

class Halves:
    def of(self, x):
        self.last = half(x)
        return self.last
"""
TESTS = """
import pytest
from toy.halves import Halves, half

def test_half():
    assert half(4) == 2

def test_words_are_refused():
    with pytest.raises(TypeError):
        half("4")

@pytest.mark.parametrize("x", [2, 6])
def test_halves(x):
    assert half(x) + half(x) == x

def test_the_last_is_kept():
    halves = Halves()
    halves.of(2)
    assert getattr(halves, "last", None) == 1
"""


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    (tmp_path / "src/toy").mkdir(parents=True)
    (tmp_path / "src/toy/__init__.py").touch()
    (tmp_path / "src/toy/halves.py").write_text(HALF)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_toy.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    return tmp_path


def fault(new: str, *, old: str = "x / FACTOR", where: str = "toy:half", test: str = "test_half") -> Fault:
    return Fault(f"{where}: {new}", where, old, new, f"tests/test_toy.py::{test}")


def outcomes(root: Path, *faults: Fault) -> list[Outcome]:
    return run_faults(root, faults, report=lambda _: None)


def test_only_a_failed_assertion_is_a_kill(toy: Path):
    cases = {
        "wrong value": fault("x / 3"),
        "nothing raised": fault("x and 2", test="test_words_are_refused"),
        "wrong in one case of two": fault("min(x / 2, 2)", test="test_halves"),
        "a statement left out": fault(
            "pass", old="self.last = half(x)", where="toy:Halves.of", test="test_the_last_is_kept"
        ),
        "a wrong constant": fault("FACTOR = 3", old="FACTOR = 2", where="toy:FACTOR"),
        "no fault at all": fault("0.5 * x"),
        "another test's fault": fault("min(x / 2, 2)"),
        "exception in the package": fault("x / 0"),
    }
    results = dict(zip(cases, outcomes(toy, *cases.values()), strict=True))
    killed = {name for name, outcome in results.items() if outcome.killed}
    assert killed == {*list(cases)[:3], "a wrong constant"}
    assert "ZeroDivisionError" in results["exception in the package"].reason
    # The method reads what it no longer writes: no assertion of the test failed.
    assert "AttributeError" in results["a statement left out"].reason


def test_a_place_is_found_whatever_its_layout(toy: Path):
    source = toy / "src/toy/halves.py"
    wanted = fault("self.last = 0", old='self.last = half( x )  # "kept"', where="toy:Halves.of")
    first = seed(toy, wanted)[1]
    source.write_text(
        "import math\n" + HALF.replace("self.last = half(x)", "self.last = (  # here\n            half(x))")
    )
    source.rename(toy / "src/toy/moved.py")
    path, text = seed(toy, wanted)
    assert path == Path("src/toy/moved.py")
    assert text == "import math\n" + first
    assert "self.last = 0" in text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param(fault("x", old="absent"), "occurs 0 times", id="old is not there"),
        pytest.param(fault("y", old="x / FACTORS"), r"Nearest there: x / FACTOR\b", id="old is nearly there"),
        pytest.param(fault("0", old="self", where="toy:Halves.of"), "occurs 2 times", id="old is ambiguous"),
        pytest.param(fault("x", where="toy:gone"), "toy:gone is not there", id="no function"),
        pytest.param(fault("x", where="gone:half"), "gone:half is not there", id="no package"),
        pytest.param(fault("x /"), "no Python", id="new is no Python"),
        pytest.param(fault("pass"), "no expression", id="new is no expression"),
    ],
)
def test_a_wrong_entry_is_an_error(toy: Path, wrong: Fault, message: str):
    with pytest.raises(FaultError, match=message):
        seed(toy, wrong)


def test_a_test_that_does_not_exist_is_an_error(toy: Path):
    with pytest.raises(FaultError, match="test_gone"):
        outcomes(toy, fault("x", test="test_gone"))


def test_tests_that_fail_without_a_fault_are_an_error(toy: Path):
    (toy / "src/toy/halves.py").write_text(HALF.replace("x / FACTOR", "x / FACTOR + 1"))
    with pytest.raises(FaultError, match="without a fault"):
        outcomes(toy, fault("x", old="x / FACTOR + 1"))


def test_tests_that_import_another_copy_are_an_error(toy: Path):
    elsewhere = f"import sys\nsys.path.insert(0, {str(toy / 'src')!r})\n"
    (toy / "tests/test_toy.py").write_text(elsewhere + TESTS)
    with pytest.raises(FaultError, match="and not from the copy"):
        outcomes(toy, fault("x / 3"))


def test_names_are_told_apart():
    assert len({entry.name for entry in FAULTS}) == len(FAULTS) > 0


@pytest.mark.parametrize("entry", FAULTS, ids=lambda entry: entry.name)
def test_an_entry_is_found_and_so_is_its_test(entry: Fault):
    seed(ROOT, entry)
    file, _, name = entry.test.partition("::")
    functions = [node.name for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)]
    assert name.partition("[")[0] in functions
