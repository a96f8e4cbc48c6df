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

ROOT = Path(__file__).parents[1]
# Where it is imported from: these sources, or what a wheel installed.
PACKAGE = Path(str(orthonorm.__file__)).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# A part of the library and the parts that it may import. `__init__` gathers the public names.
LIBRARY: dict[str, set[str]] = {
    "functional": set(),
    "nearest_name": set(),
    "parametrizations": {"functional"},
    "modules": {"functional", "parametrizations"},
    "layer_rules": set(),
    "convert": {"functional", "parametrizations", "layer_rules", "nearest_name"},
    "optim": {"functional", "nearest_name"},
    "folding": {"functional", "parametrizations"},
    "free_matrices": {"functional", "parametrizations"},
    "diagnostics": {"functional", "parametrizations"},
    "observing": set(),
    "lipschitz": set(),
    "propagation": {"functional", "observing"},
    "bench": {
        "functional",
        "nearest_name",
        "parametrizations",
        "modules",
        "layer_rules",
        "convert",
        "diagnostics",
        "optim",
    },
    "operators": {"functional", "lipschitz", "observing"},
    "monitoring": {"functional", "parametrizations", "diagnostics"},
    "checkpoints": {"functional", "nearest_name", "parametrizations", "layer_rules", "convert", "diagnostics"},
    "inspect_command": {
        "functional",
        "nearest_name",
        "parametrizations",
        "layer_rules",
        "convert",
        "diagnostics",
        "checkpoints",
    },
    "integrations": {"functional", "parametrizations", "diagnostics", "monitoring"},
    "distributed": {"functional", "nearest_name", "parametrizations", "optim"},
    "planning": {
        "functional",
        "nearest_name",
        "parametrizations",
        "layer_rules",
        "convert",
        "diagnostics",
        "checkpoints",
        "distributed",
    },
    "__init__": {
        "functional",
        "nearest_name",
        "parametrizations",
        "modules",
        "layer_rules",
        "convert",
        "folding",
        "free_matrices",
        "optim",
        "diagnostics",
        "observing",
        "lipschitz",
        "propagation",
        "operators",
        "monitoring",
        "checkpoints",
    },
}

# The parts of `orthonorm.paper` whose place matters, and which of each other they may reach,
# directly or through any module between them. A report needs records only, and those name the
# run's config.
PAPER: dict[str, set[str]] = {
    "config": set(),
    "data": set(),
    "models": set(),
    "methods": set(),
    "records": {"config"},
    "experiments": {"config"},
    "train": {"config", "data", "models", "methods", "records"},
    "reports": {"config", "records", "plots", "selection"},
    "publish": {"config", "records", "reports", "plots", "selection"},
    "selection": {"config", "records"},
    "plots": {"config", "records"},
}

# Import name of a declared distribution, where the two differ or one brings two.
IMPORTED_AS = {"dask": {"dask", "distributed"}, "markdown-it-py": {"markdown_it"}}


def distributions(requirements: list[str]) -> set[str]:
    names = {re.split(r"[\[<>=~! ]", requirement)[0] for requirement in requirements}
    return {module for name in names for module in IMPORTED_AS.get(name, {name})}


CORE_DEPENDENCIES = distributions(PROJECT["dependencies"])
PAPER_DEPENDENCIES = distributions(PROJECT["optional-dependencies"]["paper"])


def modules() -> dict[str, ast.Module]:
    """Every module of the package by its dotted name; a package's own name ends in `__init__`."""
    return {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): ast.parse(path.read_text())
        for path in sorted(PACKAGE.rglob("*.py"))
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


def at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported: no bodies of functions, nothing for types."""
    for child in ast.iter_child_nodes(tree):
        for_types = isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"
        if not for_types and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child
            yield from at_import(child)


MODULES = modules()
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
        if (own := part(name, inside)) in allowed
        for target in sorted({part(target, inside) for target in reached(name, inside)})
        if target in allowed.keys() - allowed[own] - {own}
    ]


def test_the_parts_of_the_library_import_in_one_direction():
    assert breaches(LIBRARY, "orthonorm") == []


def test_every_part_of_the_library_has_its_place():
    assert {part(name) for name in MODULES} - {"paper", "cli"} <= LIBRARY.keys()


def test_the_library_imports_neither_the_reproduction_nor_the_command_line():
    above = {name: {part(target) for target in IMPORTS[name]} for name in library_modules()}
    assert {name: found for name, found in above.items() if found & {"paper", "cli"}} == {}


def test_the_parts_of_the_reproduction_import_in_one_direction():
    assert breaches(PAPER, "orthonorm.paper") == []


def test_no_module_imports_itself_through_others():
    importers = {name.removesuffix(".__init__"): IMPORTS[name] for name in MODULES}
    # A package gathers what its modules define: they may not ask it back.
    graph = {name: (found & importers.keys()) - {"orthonorm"} - {name} for name, found in importers.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(importers)


# What reads or serves another package's things imports that package, at call or on use: an extra, not the library.
EXTRAS_OF = {
    # Triton comes with torch's CUDA wheels; both are imported when a kernel is launched.
    "orthonorm.functional.fused_kernels": {"triton"},
    "orthonorm.functional.fused_launch": {"triton"},
    "orthonorm.checkpoints": {"safetensors"},
    "orthonorm.inspect_command": {"typer"},
    "orthonorm.integrations.lightning": {"lightning"},
    "orthonorm.bench.optim": {"geoopt"},
    "orthonorm.bench.peers": {"geotorch"},
    "orthonorm.bench.networks": {"torchvision"},
    "orthonorm.planning": {"torchvision"},
}


def library_modules() -> list[str]:
    return [name for name in MODULES if part(name) not in {"paper", "cli"}]


def foreign(names: set[str]) -> set[str]:
    roots = {name.split(".")[0] for name in names}
    return roots - set(sys.stdlib_module_names) - {"orthonorm", ""}


def test_the_library_stands_on_torch_and_jaxtyping_only():
    assert sorted(CORE_DEPENDENCIES) == ["jaxtyping", "torch"]
    used = {name: foreign(IMPORTS[name]) - CORE_DEPENDENCIES - EXTRAS_OF.get(name, set()) for name in library_modules()}
    assert {name: found for name, found in used.items() if found} == {}


def test_the_reproduction_declares_what_it_imports():
    declared = CORE_DEPENDENCIES | PAPER_DEPENDENCIES
    rest = MODULES.keys() - set(library_modules())
    used = {name: foreign(IMPORTS[name]) - declared for name in rest}
    assert {name: found for name, found in used.items() if found} == {}


def test_the_reproduction_uses_public_names_of_the_library():
    private = [
        f"{name} imports {target}"
        for name in MODULES
        if part(name) == "paper"
        for target in sorted(IMPORTS[name])
        if target.startswith("orthonorm.") and part(target) != "paper"
        if any(word.startswith("_") for word in target.split("."))
    ]
    assert private == []


def test_the_command_line_imports_the_rest_at_call():
    tree = MODULES.get("orthonorm.cli", ast.Module([], []))
    found = imported("orthonorm.cli", at_import(tree))
    assert foreign(found) == set()
    assert {part(name) for name in found} <= {"", "__init__"}


def exported(package: str) -> Iterator[tuple[str, str]]:
    """What the `__init__` of a package passes on: the module that has it, and its name."""
    for node in MODULES[f"{package}.__init__"].body:
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            assert [alias.asname for alias in node.names] == [alias.name for alias in node.names], ast.unparse(node)
            yield from ((f"{package}.{node.module}", alias.name) for alias in node.names if node.module)


@pytest.mark.parametrize("name", [n for n in library_modules() if part(n) != "" and not n.endswith("__init__")])
def test_a_module_says_what_it_offers(name: str):
    offered = ast.literal_eval(next(ast.unparse(n.value) for n in MODULES[name].body if is_all(n)))  # type: ignore[attr-defined]
    defined = {n.name for n in MODULES[name].body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    assert {n for n in defined if not n.startswith("_")} <= set(offered)
    packages = ("orthonorm", "orthonorm.functional", "orthonorm.optim", "orthonorm.parametrizations")
    assert {n for package in packages for module, n in exported(package) if module == name} <= set(offered)


def is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def test_importing_the_library_imports_no_extra():
    program = "import sys, orthonorm; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    loaded = set(done.stdout.split())
    assert "orthonorm" in loaded
    # Torch itself may bring the last two.
    unwanted = (PAPER_DEPENDENCIES | {"beartype", "sklearn", "pandas", "triton"}) - {"numpy", "filelock"}
    assert {name.split(".")[0] for name in loaded} & unwanted == set()
    assert loaded & {"orthonorm.paper", "orthonorm.cli", "orthonorm.distributed"} == set()


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_holds_one_idea(path: Path):
    assert len(path.read_text().splitlines()) <= 300
    assert path.stem not in {"utils", "helpers", "misc", "common"}


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
