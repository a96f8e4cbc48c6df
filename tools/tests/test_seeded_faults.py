"""The runner of seeded faults, on a package of one file: what is a kill, and what only looks so."""

from pathlib import Path

import pytest

from seeded_faults import FaultError, Outcome, Project, run_faults
from seeded_faults_list import FAULTS, Fault

HALF = "def half(x):\n    return x / 2  # exact\n"
TESTS = """
import pytest
from toy import half

def test_half():
    assert half(4) == 2

def test_words_are_refused():
    with pytest.raises(TypeError):
        half("4")

@pytest.mark.parametrize("x", [2, 6])
def test_halves(x):
    assert half(x) + half(x) == x
"""


@pytest.fixture
def toy(tmp_path: Path) -> Project:
    (tmp_path / "src" / "toy").mkdir(parents=True)
    (tmp_path / "src" / "toy" / "__init__.py").write_text(HALF)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_toy.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    return Project(tmp_path, "toy")


def fault(new: str, *, old: str = "x / 2", test: str = "test_half") -> Fault:
    return Fault("a fault", "toy/__init__.py", old, new, (f"tests/test_toy.py::{test}",))


def outcomes(project: Project, *faults: Fault) -> list[Outcome]:
    return run_faults(project, faults, report=lambda _: None)


def test_only_a_failed_assertion_is_a_kill(toy: Project):
    cases = {
        "wrong value": fault("x / 3"),
        "nothing raised": fault("x and 2", test="test_words_are_refused"),
        "wrong in one case of two": fault("min(x / 2, 2)", test="test_halves"),
        "no fault at all": fault("0.5 * x"),
        "another test's fault": fault("min(x / 2, 2)"),
        "import error": fault("import absent\n\ndef half(x):", old="def half(x):"),
        "syntax error": fault("x /"),
        "exception in the library": fault("x / 0"),
    }
    results = dict(zip(cases, outcomes(toy, *cases.values()), strict=True))
    killed = {name for name, outcome in results.items() if outcome.killed}
    assert killed == {"wrong value", "nothing raised", "wrong in one case of two"}
    assert results["no fault at all"].reason == "the named tests passed"
    assert "ModuleNotFoundError" in results["import error"].reason
    assert "ZeroDivisionError" in results["exception in the library"].reason


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        pytest.param(fault("", old="absent"), "occurs 0 times", id="old text is not there"),
        pytest.param(fault("y", old="x"), "occurs 3 times", id="old text is ambiguous"),
        pytest.param(fault("x", test="test_gone"), "do not pass", id="test does not exist"),
        pytest.param(Fault("a fault", "toy/gone.py", "x", "y", ("t",)), "no src/toy/gone.py", id="no file"),
        pytest.param(Fault("a fault", "toy/__init__.py", "x / 2", "x", ()), "no test", id="no test"),
    ],
)
def test_a_wrong_entry_is_an_error(toy: Project, wrong: Fault, message: str):
    with pytest.raises(FaultError, match=message):
        outcomes(toy, wrong)


def test_tests_that_fail_without_a_fault_are_an_error(toy: Project):
    (toy.root / "src" / "toy" / "__init__.py").write_text("def half(x):\n    return x / 2 + 1\n")
    with pytest.raises(FaultError, match="do not pass"):
        outcomes(toy, fault("x"))


def test_tests_that_import_another_copy_are_an_error(toy: Project):
    elsewhere = f"import sys\nsys.path.insert(0, {str(toy.root / 'src')!r})\n"
    (toy.root / "tests" / "test_toy.py").write_text(elsewhere + TESTS)
    with pytest.raises(FaultError, match="and not the copy"):
        outcomes(toy, fault("x / 3"))


def test_every_fault_has_a_name_of_its_own():
    assert len({entry.name for entry in FAULTS}) == len(FAULTS) > 0
