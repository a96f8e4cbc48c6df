"""Which part may import which, read from the imports themselves. Arrows go one way."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import orthonorm

ROOT = Path(__file__).parents[2]
# Where it is imported from: these sources, or what a wheel installed.
PACKAGE = Path(str(orthonorm.__file__)).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPRODUCTION = tomllib.loads((ROOT / "reproduction/pyproject.toml").read_text())["project"]

# A part of the library and the parts that it may import. `__init__` gathers the public names.
LIBRARY: dict[str, set[str]] = {
    "functional": set(),
    "_nearest_name": set(),
    "_max_min": set(),
    "_text_table": set(),
    "parametrizations": {"functional", "_nearest_name"},
    "layers": {"functional", "parametrizations", "_nearest_name"},
    "convert": {"functional", "parametrizations", "_nearest_name", "_text_table"},
    "optim": {"functional", "_nearest_name"},
    "diagnostics": {"functional", "parametrizations", "convert", "_max_min", "_nearest_name", "_text_table"},
    "integrations": {
        "functional",
        "parametrizations",
        "convert",
        "diagnostics",
        "_max_min",
        "_nearest_name",
        "_text_table",
    },
    "distributed": {"functional", "parametrizations", "optim", "_nearest_name"},
    "cli": {
        "functional",
        "parametrizations",
        "convert",
        "diagnostics",
        "distributed",
        "optim",
        "_max_min",
        "_nearest_name",
        "_text_table",
    },
    "__init__": {
        "functional",
        "parametrizations",
        "layers",
        "convert",
        "optim",
        "diagnostics",
        "_max_min",
        "_nearest_name",
        "_text_table",
    },
}  # fmt: skip
LIBRARY["__main__"] = {"cli", *LIBRARY["cli"]}

# The parts of the reproduction, and which of each other they may reach, directly or through any module between them.
# A report needs records only, and those hold the run that they are of.
PAPER: dict[str, set[str]] = {
    "exceptions": set(),
    "records": {"exceptions"},
    "data": {"exceptions"},
    "models": {"exceptions"},
    "methods": {"exceptions"},
    "experiments": {"exceptions", "records"},
    "training": {"exceptions", "records", "data", "models", "methods"},
    "reports": {"exceptions", "records"},
    "cli": {"exceptions", "records", "data", "models", "methods", "experiments", "training", "reports"},
    "__init__": set(),
}

# Import name of a declared distribution, where the two differ or one brings two.
IMPORTED_AS = {"dask": {"dask", "distributed"}, "markdown-it-py": {"markdown_it"}}


def distributions(requirements: list[str]) -> set[str]:
    names = {re.split(r"[\[<>=~! ]", requirement)[0] for requirement in requirements}
    return {module for name in names for module in IMPORTED_AS.get(name, {name})}


CORE_DEPENDENCIES = distributions(PROJECT["dependencies"])
PAPER_DEPENDENCIES = distributions(REPRODUCTION["dependencies"])


def modules(package: Path) -> dict[str, ast.Module]:
    """Every module of a package by its dotted name; a package's own name ends in `__init__`."""
    return {
        ".".join(path.relative_to(package.parent).with_suffix("").parts): ast.parse(path.read_text())
        for path in sorted(package.rglob("*.py"))
        if "tests" not in path.relative_to(package).parts
    }


def imported(name: str, nodes: Iterator[ast.AST]) -> set[str]:
    """The absolute names of what the nodes import; `from a.b import c` is `a.b` and `a.b.c`."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = name.split(".")[: -node.level] if node.level else []
            base += node.module.split(".") if node.module else []
            found |= {".".join([*base, alias.name]) for alias in node.names}
            found.add(".".join(base))
    return found


LIBRARY_MODULES = modules(PACKAGE)
PAPER_MODULES = modules(ROOT / "reproduction/src/orthonorm_paper")
BENCHMARK_MODULES = modules(ROOT / "benchmarks")
MODULES = LIBRARY_MODULES | PAPER_MODULES | BENCHMARK_MODULES
IMPORTS = {name: imported(name, ast.walk(tree)) for name, tree in MODULES.items()}


def part(name: str, inside: str = "orthonorm") -> str:
    """The part that a dotted name below `inside` belongs to; "" for a name elsewhere."""
    prefix = f"{inside}."
    return name.removeprefix(prefix).split(".")[0] if name.startswith(prefix) else ""


def reached(name: str, inside: str) -> set[str]:
    """The modules below `inside` that a module imports, directly or through others."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        targets = IMPORTS[waiting.pop()]
        names = targets | {f"{target}.__init__" for target in targets}
        # The package's own __init__ runs first whatever is imported, and gathers every part.
        names -= {f"{inside}.__init__"}
        new = {target for target in names & MODULES.keys() if part(target, inside)} - found
        found |= new
        waiting += new
    return found


def breaches(allowed: dict[str, set[str]], inside: str) -> list[str]:
    """Each part of the table that a module reaches and its own part may not."""
    return [
        f"{name} imports {target}"
        for name in MODULES
        if (own := part(name, inside))
        for target in sorted({part(target, inside) for target in reached(name, inside)})
        if target not in allowed[own] | {own}
    ]


def test_the_parts_of_the_library_import_in_one_direction():
    assert breaches(LIBRARY, "orthonorm") == []


def test_the_parts_of_the_reproduction_import_in_one_direction():
    assert breaches(PAPER, "orthonorm_paper") == []


def test_every_part_has_its_place():
    assert {part(name) for name in LIBRARY_MODULES} == LIBRARY.keys()
    assert {part(name, "orthonorm_paper") for name in PAPER_MODULES} == PAPER.keys()


def test_the_library_imports_neither_the_reproduction_nor_the_benchmarks():
    above = {name: {target.split(".")[0] for target in IMPORTS[name]} for name in LIBRARY_MODULES}
    assert {name: found for name, found in above.items() if found & {"orthonorm_paper", "benchmarks"}} == {}


def test_no_module_imports_itself_through_others():
    importers = {name.removesuffix(".__init__"): IMPORTS[name] for name in MODULES}
    # A package gathers what its modules define: they may not ask it back.
    graph = {name: (found & importers.keys()) - {"orthonorm"} - {name} for name, found in importers.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(importers)


# What reads or serves another package's things imports that package, at call or on use: an extra, not the library.
EXTRAS_OF = {
    "orthonorm.diagnostics._file_tensors": {"safetensors"},
    "orthonorm.integrations.lightning": {"lightning"},
    "orthonorm.cli._plan": {"torchvision"},
}


def foreign(names: set[str]) -> set[str]:
    roots = {name.split(".")[0] for name in names}
    return roots - set(sys.stdlib_module_names) - {"orthonorm", "orthonorm_paper", ""}


def test_the_library_stands_on_torch_and_jaxtyping_only():
    assert sorted(CORE_DEPENDENCIES) == ["jaxtyping", "torch"]
    used = {name: foreign(IMPORTS[name]) - CORE_DEPENDENCIES - EXTRAS_OF.get(name, set()) for name in LIBRARY_MODULES}
    assert {name: found for name, found in used.items() if found} == {}


def test_the_reproduction_declares_what_it_imports():
    used = {name: foreign(IMPORTS[name]) - PAPER_DEPENDENCIES for name in PAPER_MODULES}
    assert {name: found for name, found in used.items() if found} == {}


def public_names(package: str) -> set[str]:
    """The names that `__init__` exports, as `from .module import name as name`, below the dotted package."""
    body = LIBRARY_MODULES[f"{package}.__init__"].body
    names = {a.asname for n in body if isinstance(n, ast.ImportFrom) for a in n.names if a.asname == a.name}
    return {f"{package}.{name}" for name in names}


# Packages and modules whose exports are public; `integrations.lightning` is imported by its own path.
PUBLIC = {"orthonorm"} | {
    f"orthonorm.{name}" for name in ("functional", "parametrizations", "convert", "optim", "diagnostics", "distributed")
}
PUBLIC_NAMES = (
    PUBLIC
    | {name for package in PUBLIC for name in public_names(package)}
    | {"orthonorm.layers", "orthonorm.integrations.lightning", "orthonorm.__version__"}
    | {f"orthonorm.integrations.lightning.{name}" for name in ("OrthogonalityCallback",)}
)


def library_names(tree: ast.Module, name: str) -> set[str]:
    """The dotted names of the library that a module imports, or reads from `import orthonorm as on`."""
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "orthonorm"
    }
    read = {
        f"orthonorm.{text.split('.', 1)[1]}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        if re.fullmatch(r"[\w.]+", text := ast.unparse(node)) and text.split(".")[0] in aliases
    }
    return {target for target in imported(name, ast.walk(tree)) | read if target.split(".")[0] == "orthonorm"}


@pytest.mark.parametrize("name", PAPER_MODULES)
def test_the_reproduction_uses_public_names_of_the_library(name: str):
    # An attribute of a public object (`on.OLMConfig.grouping`) is public with it.
    prefixes = [[".".join(target.split(".")[:k]) for k in (2, 3, 4)] for target in library_names(MODULES[name], name)]
    assert [found for found in prefixes if found[0] != "orthonorm" and not set(found) & PUBLIC_NAMES] == []


def test_the_border_is_drawn_by_names():
    program = "import orthonorm as on\nfrom orthonorm.functional._methods import METHODS\nx = on.functional._methods"
    found = library_names(ast.parse(program), "orthonorm_paper.module")
    assert {"orthonorm.functional._methods", "orthonorm.functional._methods.METHODS"} <= found
    assert "orthonorm.functional._methods" not in PUBLIC_NAMES
    assert {"orthonorm.orthogonalize_", "orthonorm.functional.orthonormalize"} <= PUBLIC_NAMES


def exported(package: str) -> Iterator[tuple[str, str]]:
    """What the `__init__` of a package passes on: the module that has it, and its name."""
    for node in MODULES[f"{package}.__init__"].body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            assert [alias.asname for alias in node.names] == [alias.name for alias in node.names], ast.unparse(node)
            yield from ((f"{package}.{node.module}", alias.name) for alias in node.names if node.module)


@pytest.mark.parametrize("name", [n for n in LIBRARY_MODULES if part(n) != "" and not n.endswith("__init__")])
def test_a_module_says_what_it_offers(name: str):
    offered = ast.literal_eval(next(ast.unparse(n.value) for n in MODULES[name].body if is_all(n)))  # type: ignore[attr-defined]
    defined = {n.name for n in MODULES[name].body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    assert {n for n in defined if not n.startswith("_")} <= set(offered)
    packages = ("orthonorm", "orthonorm.functional", "orthonorm.optim", "orthonorm.parametrizations")
    assert {n for package in packages for module, n in exported(package) if module == name} <= set(offered)


def is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def test_private_code_of_the_library_lies_in_private_modules():
    public = {"orthonorm.layers", "orthonorm.integrations.lightning"}
    names = {name for name in LIBRARY_MODULES if not name.rsplit(".", 1)[1].startswith("_")}
    assert names == public


def test_no_public_function_has_the_name_of_a_module():
    stems = {name.rsplit(".", 1)[1] for name in LIBRARY_MODULES} | {name.split(".")[-2] for name in LIBRARY_MODULES}
    functions = {name.rsplit(".", 1)[1] for name in PUBLIC_NAMES - PUBLIC - {"orthonorm.layers"}}
    assert functions & stems - {"lightning"} == set()


def test_importing_the_library_imports_no_extra():
    program = "import sys, orthonorm; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    loaded = set(done.stdout.split())
    assert "orthonorm" in loaded
    # Torch itself may bring the last two.
    unwanted = (PAPER_DEPENDENCIES | {"beartype", "sklearn", "pandas", "safetensors"}) - {
        "orthonorm",
        "torch",
        "jaxtyping",
        "numpy",
        "filelock",
    }
    assert {name.split(".")[0] for name in loaded} & unwanted == set()
    assert loaded & {"orthonorm.cli", "orthonorm.distributed", "orthonorm_paper"} == set()


FILES = [
    path
    for folder in (PACKAGE, ROOT / "reproduction/src", ROOT / "benchmarks")
    for path in sorted(folder.rglob("*.py"))
    if "tests" not in path.parts[-2:-1]
]


@pytest.mark.parametrize("path", FILES, ids=lambda p: "/".join(p.parts[-3:]))
def test_a_file_holds_one_idea(path: Path):
    assert len(path.read_text().splitlines()) <= 300
    assert path.stem not in {"utils", "helpers", "misc", "common"}


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=lambda p: "/".join(p.parts[-2:]))
def test_a_folder_holds_a_dozen_files_or_so(folder: Path):
    assert len(list(folder.glob("*.py"))) <= 17


def long_functions(tree: ast.Module) -> list[str]:
    """Functions of more than 40 lines, the docstring not counted."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            found += [f"{node.name}: {lines} lines"] if lines > 40 else []
    return found


def test_functions_are_short():
    assert {name: found for name in MODULES if (found := long_functions(MODULES[name]))} == {}


def takes_any_keyword(tree: ast.Module) -> list[str]:
    return [
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        if node.args.kwarg is not None and (not node.name.startswith("_") or node.name == "__init__")
    ]


def test_no_public_signature_takes_any_keyword():
    found = {name: takes_any_keyword(tree) for name, tree in MODULES.items()}
    assert {name: names for name, names in found.items() if names} == {}
