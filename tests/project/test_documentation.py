"""The pages of docs/: their code runs, their tests exist, each is in the navigation."""

import ast
import re
from pathlib import Path

import pytest

import orthonorm as on
import orthonorm.distributed

pytestmark = pytest.mark.docs
ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# The scripts of scale.md need two processes each, and have tests of their own in tests/distributed.
PAGES = [ROOT / "README.md", *sorted({*DOCS.glob("*.md"), *DOCS.glob("guides/*.md")} - {DOCS / "scale.md"})]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(page: Path):
    code = "\n".join(BLOCK.findall(page.read_text()))
    names: dict[str, object] = {"__name__": page.stem}
    exec(compile(code, page.name, "exec"), names)
    # A page stands by itself: what a reader copies has the import that it needs.
    assert names["on"] is on


def test_there_is_code_to_run():
    assert {"README.md", "index.md", "tour.md", "questions.md", "migration.md"} <= {page.name for page in WITH_CODE}


def test_every_page_is_in_the_navigation():
    named = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if "records" not in page.parts}
    assert named == pages


def test_every_promise_names_a_test_that_exists():
    promised = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (DOCS / "guarantees.md").read_text())
    assert promised
    missing = [f"{file}::{name}" for file, name in promised if name not in functions(ROOT / file)]
    assert missing == []


def functions(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    ("prefix", "module"),
    [("orthonorm", on), ("orthonorm.functional", on.functional), ("orthonorm.distributed", orthonorm.distributed)],
)
def test_the_reference_has_every_public_name(prefix: str, module: object):
    source = Path(str(getattr(module, "__file__", ""))).read_text()
    public = set(re.findall(r"^from \.\w+ import \w+ as (\w+)$", source, re.MULTILINE))
    assert public
    assert public == set(re.findall(rf"^::: {re.escape(prefix)}\.(\w+)$", (DOCS / "reference.md").read_text(), re.M))


CITATION = re.compile(r"Mathematics ((?:\(\d+\)(?:, | and | to )?)+)")


def cited(source: str) -> set[int]:
    """Return the numbers of the mathematics page that a source cites, those between the ends of a range too."""
    numbers: set[int] = set()
    for text in CITATION.findall(source):
        for first, last in re.findall(r"\((\d+)\)(?: to \((\d+)\))?", text):
            numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def test_docstrings_cite_equations_that_are_there_and_every_equation_is_cited():
    page = (DOCS / "mathematics.md").read_text()
    numbers = [int(number) for number in re.findall(r"\\tag\{(\d+)\}", page)]
    assert numbers == list(range(1, len(numbers) + 1))
    sources = {file: cited(file.read_text()) for file in Path(str(on.__file__)).parent.rglob("*.py")}
    assert {file: found - set(numbers) for file, found in sources.items() if not found <= set(numbers)} == {}
    assert set.union(*sources.values()) == set(numbers)
    assert cited("Mathematics (1) to (3) and (7).") == {1, 2, 3, 7}


def test_the_help_of_the_package_names_what_it_has_and_nothing_else():
    named = set(re.findall(r"`(?:functional\.)?(\w+)`", orthonorm.__doc__ or ""))
    lower = {name for name in vars(orthonorm) if callable(getattr(orthonorm, name)) and name[0].islower()}
    assert named <= set(dir(orthonorm)) | set(dir(orthonorm.functional))
    assert lower <= named
