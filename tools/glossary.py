"""Find words of our own where the field has its own, in docstrings and pages: words only, no sentences."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Pages that a command writes take their words from its code.
GENERATED = ("docs/bench/", "docs/gallery/", "docs/reproduction/", "docs/demo/", "docs/surgery.md")
WORDS = {
    r"anew": "again, from scratch",
    r"free matri(x|ces)": "unconstrained parameter",
    r"the maps?(?! of)": "the transformation",
    r"He's": "He initialization",
    r"orthogonal starts?": "orthogonal initialization",
    r"(is|are) told": "reports, warns, raises",
    r"condition of (up to )?[0-9][0-9e]*": "condition number",
    r"learn(s|ed|ing)? at a rate": "learning rate",
}
INSTEAD = list(WORDS.values())
PATTERN = re.compile("|".join(rf"(?P<w{i}>\b{word}\b)" for i, word in enumerate(WORDS)))


def texts() -> Iterator[tuple[str, int, str]]:
    """Yield the file, the number of the first line, and the text of every page and docstring."""
    for page in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "ARCHITECTURE.md",
        *(ROOT / "docs").rglob("*.md"),
    ):
        name = str(page.relative_to(ROOT))
        if not name.startswith(GENERATED):
            yield name, 1, page.read_text()
    for folder in ("src", "reproduction/src", "benchmarks", "tools"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
                    yield str(path.relative_to(ROOT)), getattr(node, "lineno", 0) + 1, text


def found() -> list[str]:
    """Return a line for each word, with the place and what to write instead."""
    return [
        f"{name}:{first + text.count(chr(10), 0, match.start())}: {match[0]!r}: {INSTEAD[int(match.lastgroup[1:])]}"
        for name, first, text in texts()
        for match in PATTERN.finditer(text)
        if match.lastgroup is not None
    ]


if __name__ == "__main__":
    lines = found()
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.exit(bool(lines))
